"""Meaning of the key ``strategy``: a preset, or a pooling rule, a preset of ``pooling`` alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bfl.aggregation.pooling import pooling_rules
from bfl.errors import ConfigurationError, unknown_name
from bfl.presets import presets


@dataclass(frozen=True)
class Strategy:
    """A named choice of values for keys.

    Attributes:
        name: Its full name.
        values: The values, by key.
        only_a_rule: Whether it is a pooling rule's name.
    """

    name: str
    values: Mapping[str, Any]
    only_a_rule: bool = False


def named_strategy(word: str) -> Strategy:
    """Return what a word names, a preset or a pooling rule.

    Raises:
        ConfigurationError: It names neither, or both.
    """
    is_preset, is_rule = word in presets, word in pooling_rules
    if is_preset and is_rule:
        raise ConfigurationError(
            f"strategy '{word}' is both the preset '{presets.get(word).name}' and the pooling rule "
            f"'{pooling_rules.get(word).name}'; allowed: a name of one of them"
        )
    if is_preset:
        preset = presets.get(word)
        return Strategy(preset.name, preset.values)
    if is_rule:
        name = pooling_rules.get(word).name
        return Strategy(name, {"pooling": name}, only_a_rule=True)
    spellings = {*presets.spellings(), *pooling_rules.spellings()}
    raise ConfigurationError(unknown_name("strategy", word, spellings))


def without_former_strategy(
    complete: Mapping[str, Any], changes: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a run's complete values without those that would hide another strategy's.

    For runs of which is not known what of their values was given: of those that either strategy
    sets, none is taken for it.

    Args:
        complete: The values of a run, all of them.
        changes: What is to be changed in them.
    """
    words = [values.get("strategy") for values in (complete, changes)]
    if not all(isinstance(word, str) and word for word in words):
        return dict(complete)
    try:
        former, following = (named_strategy(str(word)) for word in words)
    except ConfigurationError:  # which is said when they are resolved
        return dict(complete)
    if former.name == following.name:
        return dict(complete)
    hidden = {*former.values, *following.values}
    return {key: value for key, value in complete.items() if key not in hidden}
