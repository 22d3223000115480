"""What a preset is: a name for values of configuration keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bfl.registry import Component, Registry


class Preset(Component):
    """A method of the literature as values for configuration keys.

    A value of a preset comes before a key's default and after what the user says, also where the
    user says the default.

    Attributes:
        values: The values, by key (kebab-case); components are named in full.
    """

    values: ClassVar[Mapping[str, str | int | float | bool]] = {}


presets: Registry[Preset] = Registry("strategy", "bfl.presets")
