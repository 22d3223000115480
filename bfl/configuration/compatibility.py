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

from bfl.configuration.component_slots import (
    REGISTRIES,
    SLOTS,
    ComponentSlot,
    PickedParts,
    base_of,
)
from bfl.configuration.keys import SERVER_ONLY_KEYS, Keys
from bfl.configuration.settings import NamedStrategy
from bfl.data.corruptions import corruption_names
from bfl.errors import nearest
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
    problems = []
    if configuration.keys.resume and not configuration.keys.name:
        problems.append("resume is True, but no run is named; give the key name (and output-dir)")
    if configuration.keys.patience:
        problems += _of_patience(configuration.keys)
    for key, prior in (
        ("personal-prior", configuration.personal_prior),
        ("pretrain-prior", configuration.pretrain_prior),
    ):
        if prior.state_name:
            names = ", ".join(c.name for c in priors.classes() if not c.state_name)
            problems.append(
                f"{key} '{prior.name}' rests on what clients and server keep of a round, which is "
                f"there for prior alone; allowed: {names}"
            )
    problems += _of_personal_models(configuration)
    problems += [*_of_heads(configuration), *_hidden(configuration), *_of_closing(configuration)]
    problems += needs_of_a_network(configuration.keys, configuration)
    problems += needs_of_classes(configuration.keys, configuration)
    chain = configuration.outgoing
    problems += filter(None, (order_problem(chain), length_problem(chain)))
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
        configuration: The configuration, whose parts may have been put together otherwise.
        kinds: The kinds of which it is known what takes part.
        assumed: Kinds of which it is assumed: what their parts have counts, not what they need.
    """
    nothing = NamedStrategy("", {})
    known = _choices(configuration, nothing, {}, kinds)
    others = _choices(configuration, nothing, {}, assumed)
    named = {choice.key for choice in known}
    bare = [Choice(o.key, o.said, o.has) for o in others if o.key not in named]
    return list(conflicts([*known, *bare]))


def _of_closing(configuration: Configuration) -> list[str]:
    """Return what does not go with a closing round."""
    keys, word = configuration.keys, configuration.words["closing"]
    chain = [each for each in configuration.closing if each.measurements()]
    of_best = keys.closing_posterior == "best"
    if not chain:
        said = 'closing-posterior is "best", and there is no closing round; allowed: "last"'
        return [said] if of_best else []
    problems = _unvalidated(keys, "closing-posterior is 'best'", "'last'") if of_best else []
    if len(chain) < len(configuration.closing):
        problems.append(f"closing is '{word}', and 'none' stands alone; allowed: without 'none'")
    if is_private(configuration.outgoing):
        problems.append(
            f"closing is '{word}', whose sums may hide single examples (example-privacy) and no "
            'whole client, and outgoing has noise; allowed: closing="none", or outgoing="none"'
        )
    unbounded = [each.name for each in chain if not each.takes_noise]
    if configuration.example_privacy.private and unbounded:
        problems.append(
            f"closing has '{unbounded[0]}', whose sums take no noise, and example-privacy is "
            f"'{configuration.example_privacy.name}'; allowed: closings of bounded sums, such as "
            '"bayesian-head+feature-density"'
        )
    if configuration.shared.partial:
        problems.append(
            f"closing is '{word}', for one last layer of all clients, and shared is "
            f"'{configuration.words['shared']}', with heads of their own; allowed: shared=\"all\""
        )
    if keys.pretrain_examples:
        problems.append(
            f"closing is '{word}', which measures on examples that nobody trains on, and "
            f"pretrain-examples is {keys.pretrain_examples:g}, some of which they are; allowed: 0"
        )
    return problems


def _hidden(configuration: Configuration) -> list[str]:
    """Return what parts have by what they override, and their ``has`` does not say.

    Privacy rests on it: that clients send arrays besides their posteriors, for instance.
    """
    return [
        f"{kind.key} '{part.name}' has '{name}' by what it overrides, and its has() leaves it out; "
        "allowed: a has() that returns super().has() and what else there is"
        for kind in SLOTS
        for part in configuration.picked(kind)
        if isinstance(part, TwoSidedPart)
        for name in sorted(base_of(kind).has(part) - part.has())
    ]


def _of_patience(keys: Keys) -> list[str]:
    """Return what a run lacks that may end before its last round."""
    given = f"patience is {keys.patience}"
    problems = _unvalidated(keys, given, "0")
    # Which round is the last is known when it is over, and its clients have gone.
    if keys.evaluated_by == "clients" and keys.evaluate_every != 1:
        problems.append(
            f"{given}, evaluated-by is 'clients' and evaluate-every {keys.evaluate_every}: in the "
            "round that patience makes the last no client would evaluate its models; allowed: "
            'patience 0, evaluate-every=1, or evaluated-by="server"'
        )
    return problems


def _unvalidated(keys: Keys, given: str, allowed: str) -> list[str]:
    """Return what a run lacks whose rounds have to be validated for what is given."""
    problems = []
    if not keys.server_data:
        problems.append(
            f"{given}, and the server has no images of its own to validate with; allowed: "
            f"{allowed}, or set server-data"
        )
    if not keys.server_labels:
        problems.append(
            f"{given}, and the server has no labels to validate with; allowed: {allowed}, or "
            "server-labels=true"
        )
    return problems


def _of_personal_models(configuration: Configuration) -> list[str]:
    """Return what does not go with personal models, or within one."""
    if not configuration.personalization.active:
        return []
    problems = []
    if configuration.inference.counts_all_examples:
        problems.append(
            "likelihood-examples is 'federation', and personalization is "
            f"'{configuration.words['personalization']}', whose models count their client's "
            'examples; allowed: likelihood-examples="client", or personalization="none"'
        )
    pair = {
        "personal-inference": configuration.personal_inference,
        "personal-optimizer": configuration.personal_optimizer,
    }
    needed = frozenset({"held-precisions", "newton-steps"})
    has = frozenset.union(*(part.has() for part in pair.values())) & needed
    if has and has != needed:
        said = " and ".join(f"{key} is '{part.name}'" for key, part in pair.items())
        problems.append(f"{said}, which do not go together; allowed: both 'ivon', or neither")
    return problems


def _of_heads(configuration: Configuration) -> list[str]:
    """Return what does not go with parameters that stay on their clients."""
    shared = configuration.shared
    if not shared.partial:
        return []
    problems = []
    if configuration.keys.server_data:
        problems.append(
            f"shared is '{shared.name}', so the server has no head to predict its own images with, "
            f"and server-data is '{configuration.keys.server_data}'; allowed: none"
        )
    shown = {
        "ood-dataset": configuration.keys.ood_dataset,
        "corruptions": "+".join(corruption_names(configuration.keys.corruptions)),
    }
    for key in filter(shown.get, shown):
        problems.append(
            f"shared is '{shared.name}', so the server has no head to predict with, and {key} is "
            f"'{shown[key]}'; allowed: none"
        )
    for part in configuration.parts:
        if part.state_name and part not in (shared, configuration.personalization):
            problems.append(
                f"shared is '{shared.name}', and what '{part.name}' keeps is for all parameters of "
                'the network; allowed: shared="all", or a method without it'
            )
    return problems


def _choices(
    configuration: Configuration,
    strategy: NamedStrategy,
    given: Mapping[str, Any],
    kinds: Iterable[ComponentSlot] = SLOTS,
) -> list[Choice]:
    """Return what the configuration's keys say and declare."""
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


def needs_of_classes(keys: Keys, parts: PickedParts) -> Iterator[str]:
    """Yield what is configured that takes classes, where numbers are predicted."""
    if keys.task == "classification":
        return
    closing = [each.name for each in parts.closing if each.measurements()]
    needed = {
        "pretrain-examples": (keys.pretrain_examples, "0"),
        "evaluated-by": (keys.evaluated_by if keys.evaluated_by == "clients" else "", "'server'"),
        "closing": ("+".join(closing), "'none'"),
        "predictive": ("" if parts.predictive.idle else parts.predictive.name, "'posterior'"),
        "personalization": (
            parts.personalization.name if parts.personalization.active else "",
            "'none'",
        ),
        "shared": (parts.shared.name if parts.shared.partial else "", "'all'"),
        # A density may be above 1, and its negative log-likelihood below 0.
        "weighting": (
            parts.weighting.name if parts.weighting.needs_server or parts.weighting.reads else "",
            "others",
        ),
        "refinement": (parts.refinement.name if parts.refinement.needs_server else "", "'none'"),
    }
    for key, (value, allowed) in needed.items():
        if value:
            yield (
                f"task is '{keys.task}' and {key} is {value!r}, which is for classes; allowed: "
                f"{allowed}"
            )


def needs_of_a_network(keys: Keys, parts: PickedParts) -> Iterator[str]:
    """Yield what is configured that a server needs a network for, where it has none."""
    if keys.server_evaluates:
        return
    asking = {
        name: part.name
        for name, part in (("refinement", parts.refinement), ("weighting", parts.weighting))
        if part.needs_server
    }
    needed = {
        **asking,
        "pretrain-examples": keys.pretrain_examples,
        # Where a part asks for them, to have none is no way out.
        "server-data": keys.server_data if not asking else "",
        "predictive": not parts.predictive.idle and parts.predictive.name,
        "ood-dataset": keys.ood_dataset,
        "corruptions": " + ".join(corruption_names(keys.corruptions)),
        "shared": parts.shared.partial and parts.shared.name,
    }
    for key, value in needed.items():
        if value:
            yield (
                f"server-evaluates is false and {key} is {value!r}, for which the server needs a "
                f"network; allowed: server-evaluates=true, or {_without(key)}"
            )


def _without(key: str) -> str:
    """Return in words what there is to be nothing of."""
    return "another weighting" if key == "weighting" else f"no {key}"


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
