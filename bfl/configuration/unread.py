"""What is given in a configuration and read by nothing: a mistake, but no reason to refuse."""

from __future__ import annotations

from collections.abc import Iterable

from bfl.configuration.configuration import Configuration
from bfl.configuration.kinds import REGISTRIES
from bfl.configuration.settings import default_values


def unread_settings(configuration: Configuration, given: Iterable[str]) -> list[str]:
    """Return a sentence for each key that is given and that no chosen part of the run reads.

    Args:
        configuration: The configuration.
        given: The keys that a person has given.
    """
    return [
        f"{key} is given, and nothing in this run reads it: {reader}"
        for key in given
        if (key not in configuration.values and (reader := _readers(key)))
        or (reader := _switched_off(configuration, key))
    ]


def _readers(key: str) -> str:
    """Return which parts would read a setting."""
    readers: list[str] = []
    for registry in REGISTRIES:
        names = [c.name for c in registry.classes() if key in c.setting_keys()]
        readers += [f"{registry.kind} {' or '.join(names)}"] if names else []
    return f"{', '.join(readers)} would" if readers else ""


def _switched_off(configuration: Configuration, key: str) -> str:
    """Return why a key of every run has no effect in this one."""
    keys = configuration.keys
    if configuration.values.get(key) == default_values().get(key):
        return ""
    if key == "batch-size" and configuration.example_privacy.active:
        return f"example-privacy is '{configuration.words['example-privacy']}'"
    if key == "attackers" and keys.attackers and configuration.words["attack"] == "none":
        return "attack is 'none'"
    if key.startswith("pretrain-") and not keys.pretrain_examples:
        return "" if key == "pretrain-examples" else "pretrain-examples is 0"
    if key in ("server-examples", "best-metric") and not keys.server_data:
        return "server-data is ''"
    if key == "evaluate-mc-samples" and not (keys.evaluate_every or keys.server_data):
        return "evaluate-every is 0"
    if key == "lr-silent-rounds" and not configuration.values["lr-decay"]:
        return "lr-decay is 0"
    return ""
