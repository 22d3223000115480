"""Presets: methods as values for keys, each of which the user may still override.

- ``base``: what a preset is, and the registry ``presets``.
- every other module: one preset.
"""

from bfl.presets.base import Preset, presets

__all__ = ["Preset", "presets"]
