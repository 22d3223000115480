"""The kinds of parts that a configuration picks, declared once, as fields of ``PickedParts``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, get_args, get_type_hints

import pydantic
import pydantic.dataclasses
from pydantic.fields import FieldInfo

from bfl.aggregation.defences import Defence, defences
from bfl.aggregation.pooling import PoolingRule, pooling_rules
from bfl.aggregation.refinements import Refinement, refinements
from bfl.aggregation.samplers import Sampler, samplers
from bfl.aggregation.server_optimizers import ServerOptimizer, server_optimizers
from bfl.aggregation.weightings import Weighting, weightings
from bfl.closing import Closing, closings
from bfl.data.partitions import Partition, partitions
from bfl.errors import ConfigurationError
from bfl.evaluation.metrics import metrics
from bfl.evaluation.predictives import Predictive, predictives
from bfl.evaluation.uncertainty import uncertainties
from bfl.federation.attacks import Attack, attacks
from bfl.federation.broadcasts import Broadcast, broadcasts
from bfl.federation.exchanges import Exchange, exchanges
from bfl.federation.outgoing import Outgoing, outgoing_parts
from bfl.federation.sampling import Sampling, samplings
from bfl.federation.workloads import Workload, workloads
from bfl.learning.augmentations import Augmentation, augmentations
from bfl.learning.corrections import Correction, corrections
from bfl.learning.example_privacy import ExamplePrivacy, example_privacies
from bfl.learning.inferences import Inference, inferences
from bfl.learning.models import Architecture, architectures, create_architecture
from bfl.learning.objectives import Term, objectives
from bfl.learning.optimizers import Optimizer, optimizers
from bfl.learning.personalizations import Personalization, personalizations
from bfl.learning.priors import Prior, priors
from bfl.learning.schedules import Schedule, schedules
from bfl.learning.shared import SharedParameters, shared_parameters
from bfl.learning.starts import Start, starts
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
    description: str = ""
    key: str = ""
    attribute: str = ""
    base: type[Component] = Component
    chain: bool = False
    server_only: bool = False
    pretrains: bool = False

    def pick(self, word: str, settings: Mapping[str, Any]) -> tuple[Component, ...]:
        """Return what a word picks: one part, or those of a chain.

        Raises:
            ConfigurationError: A word is unknown, or stands twice in a chain.
            pydantic.ValidationError: A setting has the wrong type or is out of range.
        """
        make = create_architecture if self.registry is architectures else self.registry.create
        if not self.chain:
            return (make(word, settings),)
        picked = tuple(make(link.strip(), settings) for link in word.split(LINK))
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


_part, _server = ComponentSlot, partial(ComponentSlot, server_only=True)
_both = partial(ComponentSlot, pretrains=True)


@pydantic.dataclasses.dataclass(
    frozen=True,
    kw_only=True,
    config=pydantic.ConfigDict(use_attribute_docstrings=True, defer_build=True),
)
class PickedParts:
    """Parts that a configuration picks, one attribute for each kind."""

    partition: Annotated[Partition, _server(partitions, "iid")]
    """how the training data are split over the clients"""
    architecture: Annotated[Architecture, _both(architectures, "resnet20")]
    """network architecture"""
    inference: Annotated[Inference, _both(inferences, "flipout")]
    """what the network's weights are"""
    sampling: Annotated[Sampling, _server(samplings, "random")]
    """which clients take part in a round"""
    workload: Annotated[Workload, _part(workloads, "equal")]
    """how many local epochs each client makes in a round"""
    pooling: Annotated[PoolingRule, _both(pooling_rules, "weighted-sum-of-normals")]
    """how the clients' posteriors become one"""
    weighting: Annotated[Weighting, _server(weightings, "train-size")]
    """what a client's weight in the pool is"""
    defence: Annotated[Defence, _server(defences, "none")]
    """what is done to posteriors before they are pooled"""
    server_optimizer: Annotated[ServerOptimizer, _server(server_optimizers, "none")]
    """what the server makes of the step to the pooled posterior"""
    broadcast: Annotated[Broadcast, _part(broadcasts, "posterior")]
    """what of the global posterior clients are sent"""
    exchange: Annotated[Exchange, _part(exchanges, "direct")]
    """how clients' updates reach the pool"""
    refinement: Annotated[Refinement, _server(refinements, "none")]
    """what the server does with the pooled posterior beyond pooling"""
    sampler: Annotated[Sampler, _server(samplers, "gaussian")]
    """the distribution that an ensemble's samples are from"""
    prior: Annotated[Prior, _part(priors, "fixed")]
    """prior of variational clients"""
    shared: Annotated[SharedParameters, _part(shared_parameters, "all")]
    """which parameters travel; the others are a client's own, and never sent"""
    start: Annotated[Start, _part(starts, "posterior")]
    """where a client's optimizer begins in a round"""
    objective: Annotated[tuple[Term, ...], _part(objectives, "elbo", chain=True)]
    """what clients make small, a sum of terms"""
    correction: Annotated[Correction, _part(corrections, "none")]
    """what a client adds to its gradients"""
    optimizer: Annotated[Optimizer, _both(optimizers, "adam")]
    """what a training step does with the gradient"""
    personalization: Annotated[Personalization, _part(personalizations, "none")]
    """what model of its own a client trains and keeps"""
    personal_optimizer: Annotated[Optimizer, _part(optimizers, "adam")]
    """the optimizer of personal models"""
    schedule: Annotated[Schedule, _part(schedules, "exponential")]
    """what becomes of the learning rate from round to round"""
    augmentation: Annotated[Augmentation, _both(augmentations, "none")]
    """random changes of training images"""
    example_privacy: Annotated[ExamplePrivacy, _part(example_privacies, "none")]
    """what protects single examples while a client trains"""
    student_augmentation: Annotated[Augmentation, _server(augmentations, "none")]
    """random changes of the images that the server's student learns from"""
    predictive: Annotated[Predictive, _server(predictives, "posterior")]
    """what predicts, besides the posterior, when it is evaluated"""
    outgoing: Annotated[tuple[Outgoing, ...], _part(outgoing_parts, "none", chain=True)]
    """what is done to a client's update on its way out, one after the other"""
    closing: Annotated[tuple[Closing, ...], _part(closings, "none", chain=True)]
    """what clients' sums over their data tell the final network, one after the other; where none is
    named, `bfl run` takes bayesian-head+feature-density"""
    attack: Annotated[Attack, _part(attacks, "none")]
    """what hostile clients send"""


def _slots() -> Iterator[ComponentSlot]:
    known: list[Registry[Any]] = []
    declared: dict[str, FieldInfo] = vars(PickedParts)["__pydantic_fields__"]
    for attribute, hint in get_type_hints(PickedParts, include_extras=True).items():
        slot: ComponentSlot = hint.__metadata__[0]
        base = (get_args(hint.__origin__) or (hint.__origin__,))[0]
        key = kebab(attribute) if slot.registry in known else slot.registry.kind
        known.append(slot.registry)
        description = " ".join((declared[attribute].description or "").split())
        yield replace(slot, key=key, attribute=attribute, base=base, description=description)


SLOTS: tuple[ComponentSlot, ...] = tuple(_slots())
"""All kinds of parts."""

EVALUATION: tuple[Registry[Any], ...] = (metrics, uncertainties)
"""The registries of which everybody who evaluates uses all components, clients as well."""

OF_EVERY_RUN: tuple[Registry[Any], ...] = EVALUATION
"""The registries of which a run uses all components."""

REGISTRIES: tuple[Registry[Any], ...] = tuple(
    dict.fromkeys((presets, *(kind.registry for kind in SLOTS), *OF_EVERY_RUN))
)
"""The registries whose components a configuration names or reads settings for."""
