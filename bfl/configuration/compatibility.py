"""Refuse combinations of choices that are each fine alone.

A component says which properties it ``has`` (which may depend on its settings), which it
``requires`` of the others, and which it ``excludes``; a key that picks no part may do so as well.
What is said of no single part stands in a function here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from bfl.configuration.component_slots import REGISTRIES, SLOTS, ComponentSlot, base_of
from bfl.configuration.keys import SERVER_ONLY_KEYS, Keys
from bfl.configuration.settings import NamedStrategy
from bfl.data.datasets.foreign import corruption_names
from bfl.errors import unknown_name
from bfl.federation.outgoing import is_private, length_problem, order_problem
from bfl.federation.parts import TwoSidedPart
from bfl.learning.priors import priors
from bfl.registry import Component, kebab

if TYPE_CHECKING:
    from bfl.configuration.configuration import Configuration


def all_contradictions(
    configuration: Configuration,
    strategy: NamedStrategy,
    given: Mapping[str, Any],
    *,
    on_client: bool = False,
) -> list[str]:
    """Return which choices, each fine alone, do not go together.

    Args:
        on_client: Whether it is what a client was sent, who knows nothing of what the server alone
            reads; what the client does itself is not taken on trust.
    """
    problems = [*_of_the_run(configuration), *_of_numbers(configuration)]
    problems += filter(
        None, (order_problem(configuration.outgoing), length_problem(configuration.outgoing))
    )
    kinds = [kind for kind in SLOTS if not (on_client and kind.server_only)]
    choices = _choices(configuration, strategy, given, kinds)
    unknown = SERVER_ONLY_KEYS if on_client else frozenset()
    return [*problems, *conflicts([choice for choice in choices if choice.key not in unknown])]


def contradictions(
    configuration: Configuration,
    kinds: Iterable[ComponentSlot],
    assumed: Iterable[ComponentSlot] = (),
) -> list[str]:
    """Return what a configuration's parts of some kinds, and its keys, need or exclude of another.

    Args:
        assumed: Kinds of which it is assumed who takes part: what they have counts, not what they
            need.
    """
    nothing = NamedStrategy("", {})
    known = _choices(configuration, nothing, {}, kinds)
    others = _choices(configuration, nothing, {}, assumed)
    named = {choice.key for choice in known}
    bare = [Choice(o.key, o.said, o.has) for o in others if o.key not in named]
    return list(conflicts([*known, *bare]))


def _of_the_run(configuration: Configuration) -> Iterator[str]:
    """Yield what does not go together and is said of no single part."""
    keys, words = configuration.keys, configuration.words
    if keys.resume and not keys.name:
        yield "resume is True, but no run is named; give the key name (and output-dir)"
    chain = [each for each in configuration.closing if each.measurements()]
    if keys.closing_posterior == "best" and not chain:
        yield 'closing-posterior is "best", and there is no closing round; allowed: "last"'
    for given, judging, idle in (
        (f"patience is {keys.patience}", keys.patience, "0"),
        ("closing-posterior is 'best'", chain and keys.closing_posterior == "best", "'last'"),
    ):
        if judging and not (keys.server_data and keys.server_labels):
            yield (
                f"{given}, and the server has no labelled images of its own to validate with; "
                f"allowed: {idle}, or server-data with server-labels=true"
            )
    # Which round is the last is known when it is over, and its clients have gone.
    if keys.patience and keys.evaluated_by == "clients" and keys.evaluate_every != 1:
        yield (
            f"patience is {keys.patience}, evaluated-by is 'clients' and evaluate-every "
            f"{keys.evaluate_every}, so that in the round that patience makes the last no client "
            "would evaluate; allowed: evaluate-every=1"
        )
    for key, prior in (
        ("personal-prior", configuration.personal_prior),
        ("pretrain-prior", configuration.pretrain_prior),
    ):
        if prior.state_name:
            names = ", ".join(c.name for c in priors.classes() if not c.state_name)
            yield (
                f"{key} '{prior.name}' rests on what clients and server keep of a round, which is "
                f"there for prior alone; allowed: {names}"
            )
    for kind in SLOTS:
        for part in configuration.picked(kind):
            # Privacy rests on it: that clients send arrays besides their posteriors, for instance.
            halves = isinstance(part, TwoSidedPart)
            for name in sorted(base_of(kind).has(part) - part.has()) if halves else ():
                yield (
                    f"{kind.key} '{part.name}' has '{name}' by what it overrides, and its has() "
                    "leaves it out; allowed: a has() that returns super().has() and what else "
                    "there is"
                )
    if configuration.personalization.active and configuration.inference.counts_all_examples:
        yield (
            f"likelihood-examples is 'federation', and personalization is "
            f"'{words['personalization']}', whose models count their client's examples; allowed: "
            'likelihood-examples="client"'
        )
    pair = configuration.personal_inference, configuration.personal_optimizer
    needed = {"held-precisions", "newton-steps"}
    if configuration.personalization.active and len(needed & (pair[0].has() | pair[1].has())) == 1:
        yield (
            f"personal-inference is '{pair[0].name}' and personal-optimizer is '{pair[1].name}', "
            "which do not go together; allowed: both 'ivon', or neither"
        )
    if configuration.shared.partial:
        yield from _of_heads(configuration)
    if chain:
        yield from _of_closing(configuration)


def _of_closing(configuration: Configuration) -> Iterator[str]:
    keys, given = configuration.keys, f"closing is '{configuration.words['closing']}'"
    chain = [each for each in configuration.closing if each.measurements()]
    if len(chain) < len(configuration.closing):
        yield f"{given}, and 'none' stands alone; allowed: without 'none'"
    if is_private(configuration.outgoing):
        yield (
            f"{given}, whose sums may hide single examples (example-privacy) and no whole client, "
            'and outgoing has noise; allowed: closing="none", or outgoing="none"'
        )
    unbounded = [each.name for each in chain if not each.takes_noise]
    if configuration.example_privacy.private and unbounded:
        yield (
            f"closing has '{unbounded[0]}', whose sums take no noise, and example-privacy is "
            f"'{configuration.example_privacy.name}'; allowed: closings of bounded sums, such as "
            '"bayesian-head+feature-density"'
        )
    if configuration.shared.partial:
        yield (
            f"{given}, for one last layer of all clients, and shared is "
            f"'{configuration.words['shared']}', with heads of their own; allowed: shared=\"all\""
        )
    if keys.pretrain_examples:
        yield (
            f"{given}, which measures on examples that nobody trains on, and pretrain-examples is "
            f"{keys.pretrain_examples:g}, some of which they are; allowed: 0"
        )


def _of_heads(configuration: Configuration) -> Iterator[str]:
    keys, shared = configuration.keys, configuration.shared
    for key, value in {
        "server-data": keys.server_data,
        "ood-dataset": keys.ood_dataset,
        "corruptions": "+".join(corruption_names(keys.corruptions)),
    }.items():
        if value:
            yield (
                f"shared is '{shared.name}', so the server has no head to predict with, and {key} "
                f"is '{value}'; allowed: none"
            )
    for part in configuration.parts:
        if part.state_name and part not in (shared, configuration.personalization):
            yield (
                f"shared is '{shared.name}', and what '{part.name}' keeps is for all parameters of "
                'the network; allowed: shared="all", or a method without it'
            )


def _choices(
    configuration: Configuration,
    strategy: NamedStrategy,
    given: Mapping[str, Any],
    kinds: Iterable[ComponentSlot] = SLOTS,
) -> list[Choice]:
    chosen = []
    for kind in kinds:
        named = kind.key in strategy.values and kind.key not in given
        for part in configuration.picked(kind):
            said = f"{kind.key} '{part.name}'"
            if named:
                of_strategy = f"strategy '{configuration.keys.strategy}'"
                said = of_strategy if strategy.only_a_rule else f"{said} ({of_strategy})"
            declared = part.has(), part.requires(), part.excludes()
            chosen.append(Choice(kind.key, said, *declared))
    keys = configuration.keys
    has, requires = keys.has(), keys.requires()
    needed = [name for choice in chosen for name in sorted(choice.requires) if name in PROPERTIES]
    slots = {kind.key for kind in SLOTS}
    ours = [key for name in needed if (key := PROPERTIES[name].key) not in slots]
    for key in dict.fromkeys([*has.values(), *requires.values(), *ours]):
        chosen.append(
            Choice(
                key,
                f"{key} {configuration.values[key]!r}",
                has=frozenset(name for name, of in has.items() if of == key),
                requires=frozenset(name for name, of in requires.items() if of == key),
            )
        )
    return chosen


def _of_numbers(parts: Configuration) -> Iterator[str]:
    """Yield what takes classes where numbers are predicted, or a network where there is none."""
    keys = parts.keys
    weighting, refinement = parts.weighting, parts.refinement
    predictive = "" if parts.predictive.idle else parts.predictive.name
    shared = parts.shared.name if parts.shared.partial else ""
    if keys.task != "classification":
        closing = "+".join(each.name for each in parts.closing if each.measurements())
        personal = parts.personalization
        # A density may be above 1, and its negative log-likelihood below 0.
        judges = weighting.needs_server or weighting.reads
        for key, value, allowed in (
            ("pretrain-examples", keys.pretrain_examples, "0"),
            ("evaluated-by", keys.evaluated_by == "clients" and "clients", "'server'"),
            ("closing", closing, "'none'"),
            ("predictive", predictive, "'posterior'"),
            ("personalization", personal.active and personal.name, "'none'"),
            ("shared", shared, "'all'"),
            ("weighting", judges and weighting.name, "others"),
            ("refinement", refinement.needs_server and refinement.name, "'none'"),
        ):
            if value:
                yield (
                    f"task is '{keys.task}' and {key} is {value!r}, which is for classes; allowed: "
                    f"{allowed}"
                )
    if not keys.server_evaluates:
        asking = refinement.needs_server or weighting.needs_server
        for key, value, allowed in (
            ("refinement", refinement.needs_server and refinement.name, "no refinement"),
            ("weighting", weighting.needs_server and weighting.name, "another weighting"),
            ("pretrain-examples", keys.pretrain_examples, "no pretrain-examples"),
            # Where a part asks for them, to have none is no way out.
            ("server-data", not asking and keys.server_data, "no server-data"),
            ("predictive", predictive, "no predictive"),
            ("ood-dataset", keys.ood_dataset, "no ood-dataset"),
            ("corruptions", " + ".join(corruption_names(keys.corruptions)), "no corruptions"),
            ("shared", shared, "no shared"),
        ):
            if value:
                yield (
                    f"server-evaluates is false and {key} is {value!r}, for which the server needs "
                    f"a network; allowed: server-evaluates=true, or {allowed}"
                )


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
    unknown = [*declaration_problems()]
    for choice in choices:
        # A user-defined part may have slipped.
        for name in sorted((choice.has | choice.requires | choice.excludes) - PROPERTIES.keys()):
            unknown.append(
                f"{choice.said} declares an {unknown_name('property', name, PROPERTIES)}"
            )
    yield from unknown
    for choice in () if unknown else choices:
        for name in sorted(choice.requires):
            key, what, how = PROPERTIES[name]
            others = [other for other in choices if other.key == key]
            if others and not any(name in other.has for other in others):
                kinds = [kind for kind in SLOTS if kind.key == key]
                parts = [part() for kind in kinds for part in kind.registry.classes()]
                having = ", ".join(part.name for part in parts if name in part.has())
                allowed = how or (f"{key} {having}" if having else _default_of(key))
                yield (
                    f"{choice.said} needs {what}, which "
                    f"{' and '.join(other.said for other in others)} as it is set does not give; "
                    f"allowed: {allowed}, or another {choice.key}"
                )
        for name in sorted(choice.excludes):
            key, what, how = PROPERTIES[name]
            for other in choices:
                if name in other.has:
                    yield (
                        f"{choice.said} goes with no {what}, and {other.said} makes one; "
                        f"allowed: {how or _default_of(key)}, or another {choice.key}"
                    )


def _default_of(key: str) -> str:
    words = {kind.key: kind.default for kind in SLOTS}
    default = words.get(key) or Keys.model_fields[key.replace("-", "_")].default
    return f"{key}={json.dumps(default)}"


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
