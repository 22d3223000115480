"""Live logging of a run's rounds, its final figures and its configuration, picked by a word."""

from bfl.experiments.tracking.base import LiveLog, TrackedRun, Tracker, Tracking, trackers

__all__ = ["LiveLog", "TrackedRun", "Tracker", "Tracking", "trackers"]
