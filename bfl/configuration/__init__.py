"""The configuration of a run: typed keys, checked before anything starts.

``keys`` are those of every run, ``component_slots`` the kinds of parts that keys pick; ``sources``
reads both, and ``configuration`` puts them together.
"""

from bfl.configuration.compatibility import contradictions
from bfl.configuration.configuration import Configuration, refuse_unread, resolve
from bfl.configuration.settings import default_values, unset_values

__all__ = [
    "Configuration",
    "contradictions",
    "default_values",
    "refuse_unread",
    "resolve",
    "unset_values",
]
