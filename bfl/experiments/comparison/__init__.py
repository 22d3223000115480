"""Runs beside each other: what there is in a folder, what differs, and curves overlaid.

- ``listing``: the runs of a folder or of a study, and where each of them stands.
- ``differences``: in what the configurations of runs differ.
- ``overlay``: the curves of several runs in one figure.
"""
