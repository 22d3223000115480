"""Live logging of a run's rounds, its final figures and its configuration, picked by a word."""

from bfl.experiments.tracking.base import TrackedRun, Tracker, Tracking, trackers
from bfl.experiments.tracking.live import LiveLog

__all__ = ["LiveLog", "TrackedRun", "Tracker", "Tracking", "trackers"]
