"""The kinds of parts that a configuration picks, as ``picked_parts`` declares them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from bfl.configuration.picked_parts import PRETRAINS, SERVER, PickedParts
from bfl.errors import ConfigurationError
from bfl.evaluation.metrics import metrics
from bfl.evaluation.uncertainty import uncertainties
from bfl.learning.models import architectures
from bfl.presets import presets
from bfl.registry import Component, Registry, kebab

LINK = "+"
"""Separator between the words of a chain, as in ``elbo+proximal``."""


@dataclass(frozen=True)
class ComponentSlot:
    """A kind of part: what picks it, from where, and what is picked if nobody says.

    Attributes:
        registry: What there is to pick from.
        default: The word that is taken if none is given.
        description: What the key says, for people: the docstring of the declaration.
        key: The key: the registry's or, of a second one of a registry, the attribute's name.
        attribute: The attribute of ``PickedParts`` that has what is picked.
        base: The class of which all parts of the kind are.
        chain: Whether the key takes several words, in the order in which they apply, and the
            attribute holds a tuple of parts.
        server_only: Whether the server alone reads it; clients are not sent what is picked.
        pretrains: Whether pre-training goes by it as well: it is of the network or of a step on it,
            or the server's own way of pooling. Any other that clients read is the kind's default.
    """

    registry: Registry[Any]
    default: str
    description: str
    key: str
    attribute: str
    base: type[Component]
    chain: bool = False
    server_only: bool = False
    pretrains: bool = False

    def pick(self, word: str, settings: Mapping[str, Any]) -> tuple[Component, ...]:
        """Return what a word picks: one part, or those of a chain.

        Raises:
            ConfigurationError: A word is unknown, or stands twice in a chain.
            pydantic.ValidationError: A setting has the wrong type or is out of range.
        """
        if not self.chain:
            return (self.registry.create(word, settings),)
        picked = tuple(self.registry.create(link.strip(), settings) for link in word.split(LINK))
        names = [component.name for component in picked]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice:
            raise ConfigurationError(
                f"{self.key} is '{word}', which has '{twice}' twice; allowed: each once"
            )
        return picked

    def word(self, picked: tuple[Component, ...], given: str) -> str:
        """Return the word that names what has been picked in full."""
        # Of an architecture the word says the depth as well.
        of_depth = self.registry is architectures
        return given if of_depth else LINK.join(component.name for component in picked)


def _slots() -> Iterator[ComponentSlot]:
    known: list[Registry[Any]] = []
    declared = vars(PickedParts)["__pydantic_fields__"]
    for attribute, hint in get_type_hints(PickedParts, include_extras=True).items():
        default, *who = hint.__metadata__
        chained = get_args(hint.__origin__)
        base = chained[0] if chained else hint.__origin__
        module = f"{base.__module__}."
        [registry] = [each for each in Registry.known if module.startswith(f"{each.package}.")]
        yield ComponentSlot(
            registry=registry,
            default=default,
            description=" ".join(declared[attribute].description.split()),
            key=kebab(attribute) if registry in known else registry.kind,
            attribute=attribute,
            base=base,
            chain=bool(chained),
            server_only=SERVER in who,
            pretrains=PRETRAINS in who,
        )
        known.append(registry)


SLOTS = tuple(_slots())
"""All kinds of parts."""

OF_EVERY_RUN: tuple[Registry[Any], ...] = (metrics, uncertainties)
"""The registries of which a run uses all components, its clients as well where they evaluate."""

REGISTRIES: tuple[Registry[Any], ...] = tuple(
    dict.fromkeys((presets, *(kind.registry for kind in SLOTS), *OF_EVERY_RUN))
)
"""The registries whose components a configuration names or reads settings for."""
