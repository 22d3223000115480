"""Refuse combinations of choices that are each fine alone.

A component says which properties it ``has`` (which may depend on its settings), which it
``requires`` of the others, and which it ``excludes``; a key that picks no part may do so as well.
What is said of no single part stands in ``_of_the_parts`` and ``_of_closings``.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bfl.closing import closings
from bfl.configuration.component_slots import REGISTRIES, SLOTS, ComponentSlot
from bfl.configuration.keys import SERVER_ONLY_KEYS, Keys
from bfl.configuration.settings import NO_STRATEGY, NamedStrategy
from bfl.data.datasets.foreign import corruption_names
from bfl.errors import ConfigurationError, unknown_name
from bfl.federation.outgoing import is_private, length_problem, order_problem
from bfl.federation.parts import TwoSidedPart
from bfl.registry import kebab

if TYPE_CHECKING:
    from bfl.configuration.configuration import Configuration


class Choice(NamedTuple):
    """The choice of a key, in words, with the properties that it declares."""

    key: str
    description: str
    has: frozenset[str] = frozenset()
    requires: frozenset[str] = frozenset()
    excludes: frozenset[str] = frozenset()


def all_contradictions(
    configuration: Configuration,
    strategy: NamedStrategy,
    given: Container[str],
    *,
    on_client: bool = False,
) -> list[str]:
    """Return which choices, each fine alone, do not go together.

    A client (``on_client``) knows nothing of what the server alone reads, and checks the rest.
    """
    outgoing = configuration.outgoing
    choices = [
        choice
        for choice in _choices(configuration, SLOTS, strategy, given)
        if not (on_client and choice.key in _OF_THE_SERVER)
    ]
    return [
        *_of_the_parts(configuration),
        *_of_closings(configuration),
        *filter(None, [order_problem(outgoing), length_problem(outgoing)]),
        *_conflicts(choices),
    ]


def contradictions(
    configuration: Configuration,
    kinds: Iterable[ComponentSlot],
    assumed: Iterable[ComponentSlot] = (),
) -> list[str]:
    """Return what a configuration's parts of some kinds, and its keys, need or exclude of another.

    Of ``assumed`` kinds what they have counts, and not what they need.
    """
    known = _choices(configuration, kinds)
    keys = {choice.key for choice in known}
    others = [choice for choice in _choices(configuration, assumed) if choice.key not in keys]
    bare = [Choice(other.key, other.description, other.has) for other in others]
    return list(_conflicts([*known, *bare]))


_OF_THE_SERVER = SERVER_ONLY_KEYS | {kind.key for kind in SLOTS if kind.server_only}


def _choices(
    configuration: Configuration,
    kinds: Iterable[ComponentSlot],
    strategy: NamedStrategy = NO_STRATEGY,
    given: Container[str] = (),
) -> list[Choice]:
    choices = []
    for kind in kinds:
        for part in configuration.picked(kind):
            description = f"{kind.key} '{part.name}'"
            if kind.key in strategy.values and kind.key not in given:
                by = f"strategy '{configuration.keys.strategy}'"
                description = by if strategy.only_a_rule else f"{description} ({by})"
            declared = part.has(), part.requires(), part.excludes()
            choices.append(Choice(kind.key, description, *declared))
    # Keys that pick no part, and have a property, or are required to have one.
    has = configuration.keys.has()
    wanted = {name for choice in choices for name in choice.requires} & PROPERTIES.keys()
    slots = {kind.key for kind in SLOTS}
    plain = [key for name in sorted(wanted) if (key := PROPERTIES[name].key) not in slots]
    for key in dict.fromkeys([*has.values(), *plain]):
        own = frozenset(name for name, of in has.items() if of == key)
        choices.append(Choice(key, f"{key} {configuration.values[key]!r}", own))
    return choices


def _conflicts(choices: Sequence[Choice]) -> Iterator[str]:
    """Yield what choices need or exclude of each other; of a key without a choice nothing is known.

    A name of a user-defined part that is no property is refused alone, or that of a key.
    """
    every_run = {kebab(name) for name in Keys.model_fields} | {kind.key for kind in SLOTS}
    for component in (each for registry in REGISTRIES for each in registry.classes()):
        for key in sorted(every_run.intersection(component.setting_keys())):
            problem = f"has a setting '{key}', a key of every run; give it another name"
            raise ConfigurationError(f"{component.__name__} ('{component.name}') {problem}")
    for choice in choices:
        for name in sorted((choice.has | choice.requires | choice.excludes) - PROPERTIES.keys()):
            problem = unknown_name("property", name, PROPERTIES)
            raise ConfigurationError(f"{choice.description}: {problem}")
    for choice in choices:
        for name in sorted(choice.requires):
            others = [other for other in choices if other.key == PROPERTIES[name].key]
            if others and not any(name in other.has for other in others):
                names = " and ".join(other.description for other in others)
                yield (
                    f"{choice.description} needs {PROPERTIES[name].what}, which {names} does not "
                    f"give; allowed: {_allowed(name, needed=True)}"
                )
        for name in sorted(choice.excludes):
            for other in (other for other in choices if name in other.has):
                yield (
                    f"{choice.description} goes with no {PROPERTIES[name].what}, which "
                    f"{other.description} makes; allowed: {_allowed(name, needed=False)}"
                )


def _allowed(name: str, *, needed: bool) -> str:
    """Return what is allowed where a property is needed, or where it is excluded."""
    key, _, how = PROPERTIES[name]
    kinds = [kind for kind in SLOTS if kind.key == key]
    parts = [part() for kind in kinds for part in kind.registry.classes()] if needed else []
    having = ", ".join(part.name for part in parts if name in part.has())
    default = kinds[0].default if kinds else Keys.model_fields[key.replace("-", "_")].default
    return how or (f"{key} {having}" if having else f"{key}={json.dumps(default)}")


def _of_the_parts(configuration: Configuration) -> Iterator[str]:
    """Yield which parts and keys do not go together whatever parts declare, or with a task."""
    keys, shared = configuration.keys, configuration.shared
    if keys.resume and not keys.name:
        yield "resume is True, and no run is named; allowed: with the key name (and output-dir)"
    personalization, weighting = configuration.personalization, configuration.weighting
    for kind in (kind for kind in SLOTS if issubclass(kind.base, TwoSidedPart)):
        for part in configuration.picked(kind):
            # Privacy rests on it: that clients send arrays besides their posteriors, for instance.
            for name in sorted(kind.base.has(part) - part.has()):
                yield (
                    f"{kind.key} '{part.name}' has '{name}' by what it overrides, and its has() "
                    "leaves it out; allowed: a has() with what super().has() returns"
                )
    if personalization.active and configuration.inference.counts_all_examples:
        yield (
            f"likelihood-examples is 'federation', and personalization '{personalization.name}' "
            'has models that count their client\'s examples; allowed: likelihood-examples="client"'
        )
    if personalization.active and "newton-steps" in configuration.personal_optimizer.has():
        yield (
            f"personal-optimizer is '{configuration.personal_optimizer.name}', and the weights of "
            "personal models are points; allowed: an optimizer of points"
        )
    for part in configuration.parts if shared.partial else ():
        if part.state_name and part not in (shared, personalization):
            yield (
                f"shared is '{shared.name}', and what '{part.name}' keeps is for all parameters of "
                'the network; allowed: shared="all", or a method without it'
            )

    if keys.class_weights == "balanced" and configuration.example_privacy.active:
        yield (
            "class-weights is 'balanced', and example-privacy bounds examples' gradients one by "
            "one; allowed: 'equal'"
        )

    # What takes classes where numbers are predicted, or a head where there is none. A density
    # may be above 1, and its negative log-likelihood below 0.
    judges = (weighting.needs_server or weighting.reads) and weighting.name
    distils = configuration.refinement.needs_server and configuration.refinement.name
    predicts = configuration.predictive.active and configuration.predictive.name
    for key, value, of_classes in (
        ("class-weights", keys.class_weights == "balanced" and "balanced", True),
        ("pretrain-examples", keys.pretrain_examples, True),
        ("predictive", predicts, True),
        ("shared", shared.partial and shared.name, True),
        ("weighting", judges, True),
        ("refinement", distils, True),
        ("evaluated-by", keys.evaluated_by == "clients" and "clients", True),
        ("personalization", personalization.active and personalization.name, True),
        ("server-data", keys.server_data, False),
        ("ood-dataset", keys.ood_dataset, False),
        ("corruptions", "+".join(corruption_names(keys.corruptions)), False),
    ):
        if value and of_classes and keys.task != "classification":
            yield (
                f"task is '{keys.task}', and {key} is {value!r}, which is for classes; allowed: "
                f"another {key}"
            )
        if value and not of_classes and shared.partial:
            yield (
                f"shared is '{shared.name}', so the server has no head to predict with, and {key} "
                f"is '{value}'; allowed: none"
            )


def _of_closings(configuration: Configuration) -> Iterator[str]:
    """Yield what does not go with a closing round."""
    keys, words = configuration.keys, configuration.words
    if not configuration.closes:
        return
    chain = [each for each in configuration.closing if each.measurements()]
    closing, privacy = f"closing is '{words['closing']}'", configuration.example_privacy
    if len(chain) < len(configuration.closing):
        yield f"{closing}, and 'none' stands alone; allowed: without 'none'"
    for key, private in (
        ("outgoing", is_private(configuration.outgoing)),
        ("example-privacy", privacy.private),
    ):
        if private:
            yield (
                f"{closing}, whose sums have no noise, and {key} is '{words[key]}'; allowed: "
                f'closing="none", or {key}="none"'
            )
    for each in (each for each in configuration.closing if keys.task not in each.tasks):
        allowed = [other.name for other in closings.classes() if keys.task in other.tasks]
        yield (
            f"task is '{keys.task}', and closing is '{each.name}', which is for "
            f"{' and '.join(each.tasks)}; allowed: {', '.join(allowed)}"
        )
    if configuration.shared.partial:
        yield (
            f"{closing}, for one last layer of all clients, and shared is '{words['shared']}', "
            'with heads of their own; allowed: shared="all"'
        )
    if keys.pretrain_examples:
        yield (
            f"{closing}, which measures on examples that nobody trains on, and pretrain-examples "
            f"is {keys.pretrain_examples:g}, some of which they are; allowed: 0"
        )


class Property(NamedTuple):
    """Something that a component of a key may have, and another may need or exclude.

    ``what`` follows "needs" and "goes with no"; ``how`` is what is allowed, if no part's name is.
    """

    key: str
    what: str
    how: str = ""


PROPERTIES: Mapping[str, Property] = {
    "plain-steps": Property("optimizer", "plain gradient steps", 'optimizer="sgd" momentum=0.0'),
    "uniform-weights": Property("weighting", "clients of equal weight"),
    "weights-by-counts": Property("weighting", "weights that do not depend on what clients send"),
    "gaussian": Property("inference", "Gaussian posteriors"),
    "clients-to-draw-from": Property("inference", "Gaussian posteriors to draw from"),
    "own-likelihood": Property(
        "inference", "a likelihood of each client's own examples", 'likelihood-examples="client"'
    ),
    "held-precisions": Property("inference", "networks that hold precisions"),
    "fitted-variances": Property("inference", "variances that are fitted after training"),
    "newton-steps": Property("optimizer", "Newton steps of means and precisions"),
    "separate-gradients": Property("optimizer", "gradient of the examples by itself"),
    "evidence-lower-bound": Property("objective", "the evidence lower bound"),
    "averaged-means": Property("pooling", "a pool at the weighted average of the clients' means"),
    "factors": Property("pooling", "a pool of changed factors"),
    "cavity": Property("prior", "the cavity as the clients' prior"),
    "duals": Property("prior", "duals that clients keep"),
    "summed-duals": Property("server-optimizer", "a server that sums the clients' duals"),
    "averaged-precisions": Property("pooling", "a pool of averaged natural parameters"),
    "convolutions": Property("model", "layers before the first dense one"),
    "sums": Property("pooling", "a pool of sums, each client's part of which is its own alone"),
    "changed-updates": Property("defence", "change of what clients have sent"),
    "corrupted-updates": Property("attack", "hostile client whose lies would be what it keeps"),
    "clipped-updates": Property("outgoing", "updates that are clipped", 'outgoing="clip+noise"'),
    "bounded-gradients": Property(
        "example-privacy", "gradients of a bounded length", "'dp-sgd', example-clip-norm above 0"
    ),
    "repeated-examples": Property("partition", "example that stands twice", 'partition="step"'),
    "personal-models": Property("personalization", "model that learns from the data without noise"),
    "averaged-values": Property("pooling", "an average of means, points and log σ"),
    "moving-statistics": Property("model", "moving statistics", 'normalization="group"'),
    "sent-beside": Property("correction", "array that clients send besides their posteriors"),
    "evaluated-by-clients": Property("evaluated-by", "numbers that clients have measured"),
    "secret-measurements": Property(
        "exchange", "secrecy of what clients measure", 'exchange="direct" and no noise'
    ),
    "asked-once": Property("round-retries", "clients asked once a round", "round-retries=0"),
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
    "evaluated-heads": Property("evaluated-by", "clients that evaluate", 'evaluated-by="clients"'),
    "evaluated-clients": Property("weighting", "evaluation of clients' models by the server"),
    "evaluated-ensemble": Property("predictive", "evaluation of an ensemble by the server"),
}
"""Properties that parts may declare, by name."""
