"""Requirements that the parts of a method declare of each other, checked in one place.

A component says which properties it ``has`` (which may depend on its settings), which it
``requires`` of the others, and which it ``excludes``; a key that picks no part may do so as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from bfl.configuration.component_slots import REGISTRIES, SLOTS, base_of
from bfl.configuration.keys import Keys
from bfl.errors import nearest
from bfl.federation.parts import TwoSidedPart
from bfl.registry import Component, kebab


class Property(NamedTuple):
    """Something that a component of a configuration may have, and another may need or exclude.

    Attributes:
        key: The configuration key whose component has it or not.
        what: The words that follow "needs" and "goes with no".
        how: The values by which a configuration gets it, or gets rid of it if it is excluded;
            empty: a part that has it by default, or the key's default.
    """

    key: str
    what: str
    how: str = ""


PROPERTIES: Mapping[str, Property] = {
    "plain-steps": Property(
        "optimizer", "steps along the plain gradient", 'optimizer="sgd" momentum=0.0'
    ),
    "uniform-weights": Property("weighting", "clients of equal weight"),
    "weights-by-counts": Property("weighting", "weights that do not depend on what clients send"),
    "gaussian": Property("inference", "Gaussian posteriors"),
    "clients-to-draw-from": Property(
        "inference", "clients with Gaussian posteriors to draw from (client-draws)"
    ),
    "own-likelihood": Property(
        "inference",
        "a likelihood of each client's own examples",
        'likelihood-examples="client", or another inference than ivon',
    ),
    "held-precisions": Property("inference", "networks that hold precisions"),
    "newton-steps": Property("optimizer", "Newton steps of means and precisions"),
    "separate-gradients": Property("optimizer", "gradient of the examples by itself"),
    "evidence-lower-bound": Property("objective", "the evidence lower bound"),
    "averaged-means": Property("pooling", "a pool at the weighted average of the clients' means"),
    "factors": Property("pooling", "a pool of changed factors"),
    "cavity": Property("prior", "the cavity as the clients' prior"),
    "compilable": Property("model", "a model that XLA compiles to one result"),
    "convolutions": Property("model", "layers before the first dense one"),
    "sums": Property("pooling", "a pool of sums, each client's part of which is its own alone"),
    "changed-updates": Property("defence", "change of what clients have sent"),
    "corrupted-updates": Property("attack", "hostile client whose lies would be what it keeps"),
    "clipped-updates": Property("outgoing", "updates that are clipped", 'outgoing="clip+noise"'),
    "bounded-gradients": Property(
        "example-privacy",
        "gradients of a bounded length",
        'example-privacy="dp-sgd" with example-clip-norm above 0',
    ),
    "repeated-examples": Property("partition", "example that stands twice", 'partition="step"'),
    "full-gradient": Property("correction", "gradient over all of a client's examples"),
    "compiled-steps": Property("jit", "training step that XLA compiles"),
    "personal-models": Property("personalization", "model that learns from the data without noise"),
    "averaged-values": Property("pooling", "an average of means, points and log σ"),
    "normalization": Property("model", "normalisation", 'model="resnet20"'),
    "moving-statistics": Property(
        "model", "normalisation with moving statistics", 'normalization="group"'
    ),
    "sent-beside": Property("correction", "array that clients send besides their posteriors"),
    "evaluated-by-clients": Property("evaluated-by", "numbers that clients have measured"),
    "secret-measurements": Property(
        "exchange",
        "secrecy of what clients measure, as nobody but they has a whole network to evaluate",
        'exchange="direct" and no noise',
    ),
    "asked-once": Property(
        "round-retries", "clients that are asked once a round", "round-retries=0"
    ),
    "falling-rate": Property("local-lr-decay", "learning rate that falls within a round"),
    "unseen-updates": Property("exchange", "updates whose length the server cannot look at"),
    "single-models": Property(
        "refinement", "look at single clients' models", 'refinement="none" predictive="posterior"'
    ),
    "moved-pool": Property("server-optimizer", "step beyond the pool"),
    "refined-pool": Property("refinement", "change of the pool by the server"),
    "server-images": Property(
        "server-data", "images of the server's own", 'server-data="held-back", or a data set'
    ),
    "server-labels": Property("server-labels", "labels of the server's own images"),
    "raised-variances": Property("scale-floor", "floor under variances", "scale-floor=0.0"),
    "sent-variances": Property("broadcast", "clients that are sent variances"),
    "start-elsewhere": Property("start", "start elsewhere than at the received posterior"),
    "pre-training": Property("pretrain-examples", "start other than the prior"),
    "given-start": Property("initial-posterior", "start other than the prior"),
    "evaluated-heads": Property(
        "evaluated-by", "clients that evaluate, as the server has no head", 'evaluated-by="clients"'
    ),
    "evaluated-clients": Property("weighting", "evaluation of clients' models by the server"),
    "evaluated-ensemble": Property("predictive", "evaluation of an ensemble by the server"),
}
"""Properties that parts may declare, by name."""


@dataclass(frozen=True)
class Choice:
    """Choice of a key, with the properties that it declares.

    Attributes:
        said: The key and what it says, for people.
    """

    key: str
    said: str
    has: frozenset[str] = frozenset()
    requires: frozenset[str] = frozenset()
    excludes: frozenset[str] = frozenset()


def conflicts(choices: Sequence[Choice]) -> Iterator[str]:
    """Yield, for people, what the choices of a configuration need or exclude of each other.

    Args:
        choices: What each key says that declares anything. A key that is not among them is one of
            which nothing is known.
    """
    unknown = [*declaration_problems(), *_unknown_properties(choices)]
    yield from unknown
    for choice in () if unknown else choices:
        for name in sorted(choice.requires):
            key, what, how = PROPERTIES[name]
            others = [other for other in choices if other.key == key]
            if others and not any(name in other.has for other in others):
                having = [part.name for part in _default_parts(key) if name in part.has()]
                allowed = how or (f"{key} {', '.join(having)}" if having else _default_of(key))
                yield (
                    f"{choice.said} needs {what}, which "
                    f"{' and '.join(other.said for other in others)} as it is set does not give; "
                    f"allowed: {allowed}{_instead(choice.key, name)}"
                )
        for name in sorted(choice.excludes):
            key, what, how = PROPERTIES[name]
            for other in choices:
                if name in other.has:
                    yield (
                        f"{choice.said} goes with no {what}, and {other.said} makes one; "
                        f"allowed: {how or _default_of(key)}{_instead(choice.key, name)}"
                    )


def _default_parts(key: str) -> Iterator[Component]:
    return (c() for kind in SLOTS if kind.key == key for c in kind.registry.classes())


def _instead(key: str, name: str) -> str:
    """Return the parts that a key could pick instead, which do not care for a property."""
    careless = [p.name for p in _default_parts(key) if name not in p.requires() | p.excludes()]
    return f", or {key} {', '.join(careless)}" if careless else ""


def _default_of(key: str) -> str:
    words = {kind.key: kind.default for kind in SLOTS}
    default = words.get(key) or Keys.model_fields[key.replace("-", "_")].default
    return f"{key}={json.dumps(default)}"


def _unknown_properties(choices: Sequence[Choice]) -> Iterator[str]:
    """Yield what choices declare that is no property: a user-defined part may have slipped."""
    for choice in choices:
        for name in sorted((choice.has | choice.requires | choice.excludes) - PROPERTIES.keys()):
            guess = nearest(name, PROPERTIES)
            hint = f"; did you mean '{guess}'?" if guess else ""
            yield (
                f"{choice.said} declares the property '{name}', which is none{hint}; allowed: "
                f"{', '.join(PROPERTIES)}"
            )


def declaration_problems() -> tuple[str, ...]:
    """Return, for people, what components declare that collides with the keys of every run."""
    return _declaration_problems(tuple(registry.classes() for registry in REGISTRIES))


@lru_cache(maxsize=1)
def _declaration_problems(registered: tuple[tuple[type[Component], ...], ...]) -> tuple[str, ...]:
    """Return what is declared wrongly, found once for all configurations of a process."""
    problems = []
    every_run = {kebab(name) for name in Keys.model_fields} | {kind.key for kind in SLOTS}
    both_sides = {kind.registry for kind in SLOTS if issubclass(base_of(kind), TwoSidedPart)}
    for registry in REGISTRIES:
        for component in registry.classes():
            who = f"{component.__name__} ('{component.name}')"
            problems += [
                f"{who} has a setting '{key}', a key of every run; give it another name"
                for key in sorted(every_run.intersection(component.setting_keys()))
            ]
            if issubclass(component, TwoSidedPart) and registry not in both_sides:
                allowed = ", ".join(sorted(each.kind for each in both_sides))
                problems.append(
                    f"{who} is a TwoSidedPart, with a half on clients, and clients are not sent "
                    f"the {registry.kind}; allowed for a TwoSidedPart: {allowed}"
                )
    return tuple(problems)
