"""The configuration of a run: typed keys, checked before anything starts.

- ``keys``: the keys that every run has and that pick no part, typed.
- ``component_slots``: the kinds of parts that keys pick, each declared once.
- ``settings``: all keys with their defaults, what it is to give none, what ``strategy`` names.
- ``configuration``: all keys together, with the components they pick.
- ``compatibility``: whether all that a configuration has picked goes together.
- ``messages``: what is said about a value that is refused.
- ``pairs``: key=value pairs in a text.
- ``sources``: where values come from: a Flower app's pyproject.toml, TOML files, key=value pairs.
"""

from bfl.configuration.compatibility import contradictions
from bfl.configuration.configuration import Configuration, refuse_unread, resolve
from bfl.configuration.settings import default_values, expanded, unset_values

__all__ = [
    "Configuration",
    "contradictions",
    "default_values",
    "expanded",
    "refuse_unread",
    "resolve",
    "unset_values",
]
