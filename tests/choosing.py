"""What a part goes with, for tests that take every part there is."""

from typing import Any

from bfl.configuration import resolve
from bfl.configuration.component_slots import LINK, SLOTS, ComponentSlot
from bfl.errors import ConfigurationError
from bfl.presets import presets
from bfl.registry import Component

PRIVATE = {"weighting": "equal", "normalization": "group", "round-retries": 0}
"""What a part needs of keys that no strategy sets: clients alike that say nothing else."""


OF_NUMBERS = {"task": "regression", "dataset": "table:any.csv", "target": "y"}
"""What a closing of numbers needs."""


def word_of(kind: ComponentSlot, name: str) -> str:
    """Return the word that picks a component: a family of networks is named with a depth, and a
    part of a chain with those of its kind that it needs before it."""
    component = kind.registry.get(name)
    depth = component.model_fields.get("depth")
    needed = component().requires() if kind.chain else frozenset()
    before = [c.name for c in kind.registry.classes() if kind.chain and c().has() & needed]
    return LINK.join([*before, name]) if before else f"{name}{depth.default}" if depth else name


def parts_of_all_keys() -> list[tuple[ComponentSlot, type[Component]]]:
    """Return the parts that each key may name."""
    return [(kind, component) for kind in SLOTS for component in kind.registry.classes()]


def going_with(key: str, word: str) -> dict[str, Any]:
    """Return a strategy with which a part resolves: averaging, which pools points as well, or the
    first preset that has what the part needs."""
    for strategy in ("naive-weighted-averaging", *presets.names()):
        for more in ({}, PRIVATE, OF_NUMBERS):
            chosen: dict[str, Any] = {"strategy": strategy, **more}
            try:
                resolve({**chosen, key: word}, check_data=False)
            except ConfigurationError:
                continue
            return chosen
    raise AssertionError(f"no strategy goes with {key} '{word}'")
