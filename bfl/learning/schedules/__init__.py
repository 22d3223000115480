"""Schedules: the learning rate of a round.

- ``base``: what a schedule is, and the registry ``schedules``.
- every other module: one schedule.
"""

from bfl.learning.schedules.base import Schedule, schedules

__all__ = ["Schedule", "schedules"]
