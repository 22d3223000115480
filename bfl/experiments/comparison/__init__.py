"""Runs beside each other: what there is in a folder, what differs, and curves overlaid.

- ``listing``: the runs of a folder or of a study, their states and differences.
- ``overlay``: the curves of several runs in one figure; ``layouts``: their features in the plane.
"""
