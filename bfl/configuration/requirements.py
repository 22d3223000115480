"""Requirements that the parts of a method declare of each other, checked in one place.

A component says which properties it ``has`` (which may depend on its settings), which it
``requires`` of the others, and which it ``excludes``; a key that picks no part may do so as well.
Nothing here knows a component, and nowhere is a list of pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from bfl.configuration.component_slots import REGISTRIES, SLOTS, base_of
from bfl.configuration.keys import Keys
from bfl.errors import nearest, unknown_name
from bfl.federation.parts import TwoSidedPart
from bfl.registry import Component, Property, kebab

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
    "separate-gradients": Property(
        "optimizer", "gradient of the examples by itself", 'optimizer="adam"'
    ),
    "evidence-lower-bound": Property("objective", "the evidence lower bound", 'objective="elbo"'),
    "averaged-means": Property("pooling", "a pool at the weighted average of the clients' means"),
    "factors": Property("pooling", "a pool of changed factors"),
    "cavity": Property("prior", "the cavity as the clients' prior"),
    "compilable": Property("model", "a model that XLA compiles to one result"),
    "convolutions": Property("model", "layers before the first dense one"),
    "sums": Property("pooling", "a pool of sums, each client's part of which is its own alone"),
    "changed-updates": Property("defence", "change of what clients have sent", 'defence="none"'),
    "corrupted-updates": Property(
        "attack", "hostile client whose lies would be what it keeps", 'attack="none"'
    ),
    "clipped-updates": Property("outgoing", "updates that are clipped", 'outgoing="clip+noise"'),
    "bounded-gradients": Property(
        "example-privacy",
        "gradients of a bounded length",
        'example-privacy="dp-sgd" with example-clip-norm above 0',
    ),
    "repeated-examples": Property("partition", "example that stands twice", 'partition="step"'),
    "full-gradient": Property(
        "correction", "gradient over all of a client's examples", 'correction="none"'
    ),
    "compiled-steps": Property("jit", "training step that XLA compiles", 'jit="auto"'),
    "personal-models": Property(
        "personalization", "model that learns from the data without noise", 'personalization="none"'
    ),
    "averaged-values": Property("pooling", "an average of means, points and log σ"),
    "normalization": Property("model", "normalisation", 'model="resnet20"'),
    "moving-statistics": Property(
        "model", "normalisation with moving statistics", 'normalization="group"'
    ),
    "sent-beside": Property(
        "correction", "array that clients send besides their posteriors", 'correction="none"'
    ),
    "evaluated-by-clients": Property(
        "evaluated-by", "numbers that clients have measured", 'evaluated-by="server"'
    ),
    "secret-measurements": Property(
        "exchange",
        "secrecy of what clients measure, as nobody but they has a whole network to evaluate",
        'exchange="direct" and no noise',
    ),
    "asked-once": Property(
        "round-retries", "clients that are asked once a round", "round-retries=0"
    ),
    "falling-rate": Property(
        "local-lr-decay", "learning rate that falls within a round", "local-lr-decay=1.0"
    ),
    "unseen-updates": Property(
        "exchange", "updates whose length the server cannot look at", 'exchange="direct"'
    ),
    "single-models": Property(
        "refinement", "look at single clients' models", 'refinement="none" predictive="posterior"'
    ),
    "moved-pool": Property("server-optimizer", "step beyond the pool", 'server-optimizer="none"'),
    "refined-pool": Property("refinement", "change of the pool by the server", 'refinement="none"'),
    "server-images": Property(
        "server-data", "images of the server's own", 'server-data="held-back", or a data set'
    ),
    "server-labels": Property(
        "server-labels", "labels of the server's own images", "server-labels=true"
    ),
    "raised-variances": Property("scale-floor", "floor under variances", "scale-floor=0.0"),
    "sent-variances": Property("broadcast", "clients that are sent variances"),
    "start-elsewhere": Property(
        "start", "start elsewhere than at the received posterior", 'start="posterior"'
    ),
    "pre-training": Property(
        "pretrain-examples", "start other than the prior", "pretrain-examples=0.0"
    ),
    "given-start": Property(
        "initial-posterior", "start other than the prior", 'initial-posterior=""'
    ),
    "evaluated-heads": Property(
        "evaluated-by", "clients that evaluate, as the server has no head", 'evaluated-by="clients"'
    ),
    "evaluated-clients": Property(
        "weighting", "evaluation of clients' models by the server", 'weighting="train-size"'
    ),
    "evaluated-ensemble": Property(
        "predictive", "evaluation of an ensemble by the server", 'predictive="posterior"'
    ),
}
"""bfl's own properties by name."""


def properties() -> Mapping[str, Property]:
    """Return all properties by name: bfl's own, and what registered components bring."""
    return {**{name: p for c in _components() for name, p in c.brings.items()}, **PROPERTIES}


def declaration_problems() -> tuple[str, ...]:
    """Return, for people, what components declare that collides with keys or other components."""
    return _declaration_problems(tuple(registry.classes() for registry in REGISTRIES))


@lru_cache(maxsize=1)
def _declaration_problems(registered: tuple[tuple[type[Component], ...], ...]) -> tuple[str, ...]:
    """Return what is declared wrongly, found once for all configurations of a process."""
    return tuple(_collisions())


def _collisions() -> Iterator[str]:
    known, keys = dict(PROPERTIES), {kind.key for kind in SLOTS}
    every_run = {kebab(name) for name in Keys.model_fields} | keys
    both_sides = {kind.registry for kind in SLOTS if issubclass(base_of(kind), TwoSidedPart)}
    for registry in REGISTRIES:
        for component in registry.classes():
            who = f"{component.__name__} ('{component.name}')"
            for name, brought in component.brings.items():
                there = known.setdefault(name, brought)
                if there != brought:
                    yield (
                        f"{who} brings the property '{name}', which there is already, as "
                        f"{there.what!r}; give it another name"
                    )
                if brought.key not in keys:
                    wrong = unknown_name("kind of part", brought.key, keys)
                    yield f"{who} brings the property '{name}' of {wrong}"
            for key in sorted(every_run.intersection(component.setting_keys())):
                yield f"{who} has a setting '{key}', a key of every run; give it another name"
            if issubclass(component, TwoSidedPart) and registry not in both_sides:
                allowed = ", ".join(sorted(each.kind for each in both_sides))
                yield (
                    f"{who} is a TwoSidedPart, with a half on clients, and clients are not sent "
                    f"the {registry.kind}; allowed for a TwoSidedPart: {allowed}"
                )


def _components() -> Iterator[type[Component]]:
    registries = dict.fromkeys(kind.registry for kind in SLOTS)
    return (component for registry in registries for component in registry.classes())


@dataclass(frozen=True)
class Choice:
    """Choice of a key, with the properties that it declares.

    Attributes:
        said: The key and what it says, for people.
        part: The name of the part that it picks; empty: it picks none.
    """

    key: str
    said: str
    has: frozenset[str] = frozenset()
    requires: frozenset[str] = frozenset()
    excludes: frozenset[str] = frozenset()
    part: str = ""


def conflicts(choices: Sequence[Choice]) -> Iterator[str]:
    """Yield, for people, what the choices of a configuration need or exclude of each other.

    Args:
        choices: What each key says that declares anything. A key that is not among them is one of
            which nothing is known.
    """
    known = properties()
    unknown = [*declaration_problems(), *_unknown_properties(choices, known)]
    yield from unknown
    for choice in () if unknown else choices:
        for name in sorted(choice.requires):
            others = [other for other in choices if other.key == known[name].key]
            if others and not any(name in other.has for other in others):
                yield (
                    f"{choice.said} needs {known[name].what}, which "
                    f"{' and '.join(other.said for other in others)} as it is set does not give; "
                    f"allowed: {_remedies(choice, name, known[name])}"
                )
        for name in sorted(choice.excludes):
            for other in choices:
                if name in other.has:
                    yield (
                        f"{choice.said} goes with no {known[name].what}, and {other.said} "
                        f"makes one; allowed: {_remedies(choice, name, known[name])}"
                    )


def _unknown_properties(choices: Sequence[Choice], known: Mapping[str, Property]) -> Iterator[str]:
    """Yield what choices declare that is no property: a user-defined part may have slipped."""
    for choice in choices:
        for name in sorted((choice.has | choice.requires | choice.excludes) - known.keys()):
            guess = nearest(name, known)
            yield (
                f"{choice.said} declares the property '{name}', which is none"
                + (f"; did you mean '{guess}'?" if guess else "")
                + f"; allowed: {', '.join(known)}"
            )


def _remedies(choice: Choice, name: str, needed: Property) -> str:
    """Return what there is to choose instead, on either side."""
    having = [part.name for part in _parts(needed.key) if name in part.has()]
    how = needed.how or f"{needed.key} {', '.join(having)}"
    instead = [
        f"{part.name} as it is set by default" if part.name == choice.part else part.name
        for part in _parts(choice.key)
        if name not in part.requires() | part.excludes()
    ]
    return f"{how}, or {choice.key} {', '.join(instead)}" if instead else how


def _parts(key: str) -> Iterator[Component]:
    """Yield the parts that a key may pick, as they are set by default."""
    return (c() for kind in SLOTS if kind.key == key for c in kind.registry.classes())
