"""The configuration of a run: typed keys, checked before anything starts.

- ``keys``: the keys that every run has, typed.
- ``configuration``: all keys together, with the components they pick.
- ``unread``: what is given and read by nothing.
- ``messages``: what is said about a value that is refused.
- ``sources``: where values come from: a Flower app's pyproject.toml, TOML files, key=value pairs.
"""

from bfl.configuration.configuration import Configuration, default_values, resolve
from bfl.configuration.unread import unread_settings

__all__ = ["Configuration", "default_values", "resolve", "unread_settings"]
