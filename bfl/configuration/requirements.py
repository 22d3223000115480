"""What the parts of a method need of each other: declared by each, checked in one place.

A component says which properties it ``has`` (which may depend on its settings), which it
``requires`` of the others, and which it ``excludes``. Nothing here knows a component.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bfl.registry import Component


@dataclass(frozen=True)
class Property:
    """Something that a component of a configuration may have, and another may need or exclude.

    Attributes:
        key: The configuration key whose component has it or not.
        what: What it is, in words that follow "needs" and "goes with no".
        how: How a configuration gets it, or gets rid of it if it is excluded.
    """

    key: str
    what: str
    how: str


PROPERTIES: Mapping[str, Property] = {
    "plain-steps": Property(
        "optimizer", "steps along the plain gradient", 'optimizer="sgd" momentum=0.0'
    ),
    "uniform-weights": Property("weighting", "clients of equal weight", 'weighting="equal"'),
    "weights-by-counts": Property(
        "weighting",
        "weights that do not depend on what clients send",
        'weighting="train-size" or weighting="equal"',
    ),
    "gaussian": Property(
        "inference", "Gaussian posteriors", 'inference="flipout" or inference="reparameterization"'
    ),
    "factors": Property("strategy", "a pool of changed factors", 'pooling="factor-changes"'),
    "cavity": Property("prior", "the cavity as the clients' prior", 'prior="cavity"'),
    "changed-updates": Property("defence", "change of what clients have sent", 'defence="none"'),
    "moved-pool": Property("server-optimizer", "step beyond the pool", 'server-optimizer="none"'),
}
"""The properties by name."""


def conflicts(components: Mapping[str, Component]) -> Iterator[str]:
    """Yield, for people, what the parts of a configuration need or exclude and do not find.

    Args:
        components: The components by the configuration key that picks each.
    """
    for key, component in components.items():
        for name in sorted(component.requires()):
            needed = PROPERTIES[name]
            other = components[needed.key]
            if name not in other.has():
                yield (
                    f"{key} '{component.name}' needs {needed.what}, which {needed.key} "
                    f"'{other.name}' as it is set does not give; allowed: {needed.how}"
                )
        for name in sorted(component.excludes()):
            excluded = PROPERTIES[name]
            for other_key, other in components.items():
                if name in other.has():
                    yield (
                        f"{key} '{component.name}' goes with no {excluded.what}, and {other_key} "
                        f"'{other.name}' makes one; allowed: {excluded.how}"
                    )
