"""Workloads: how many local epochs a client makes in a round.

- ``base``: what a workload is, and the registry ``workloads``.
- every other module: one workload.
"""

from bfl.federation.workloads.base import Workload, workloads

__all__ = ["Workload", "workloads"]
