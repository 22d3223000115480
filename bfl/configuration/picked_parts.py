"""The parts that a configuration picks: a kind of part is one line here, and a file of its own."""

from __future__ import annotations

from typing import Annotated

import pydantic
import pydantic.dataclasses

from bfl.aggregation.defences import Defence
from bfl.aggregation.pooling import PoolingRule
from bfl.aggregation.refinements import Refinement
from bfl.aggregation.samplers import Sampler
from bfl.aggregation.server_optimizers import ServerOptimizer
from bfl.aggregation.weightings import Weighting
from bfl.closing import Closing
from bfl.data.partitions.base import Partition
from bfl.evaluation.predictives import Predictive
from bfl.federation.attacks import Attack
from bfl.federation.broadcasts import Broadcast
from bfl.federation.exchanges import Exchange
from bfl.federation.outgoing import Outgoing
from bfl.federation.sampling import Sampling
from bfl.federation.workloads import Workload
from bfl.learning.augmentations import Augmentation
from bfl.learning.corrections import Correction
from bfl.learning.example_privacy import ExamplePrivacy
from bfl.learning.inferences import Inference
from bfl.learning.models import Architecture
from bfl.learning.objectives import Term
from bfl.learning.optimizers import Optimizer
from bfl.learning.personalizations import Personalization
from bfl.learning.priors import Prior
from bfl.learning.schedules import Schedule
from bfl.learning.shared import SharedParameters
from bfl.learning.starts import Start

SERVER, PRETRAINS = "server", "pretrains"
"""Marks of a part that the server alone goes by, or pre-training as well; see ``ComponentSlot``."""


@pydantic.dataclasses.dataclass(
    frozen=True,
    kw_only=True,
    config=pydantic.ConfigDict(use_attribute_docstrings=True, defer_build=True),
)
class PickedParts:
    """Parts that a configuration picks: the kind's class, the word that picks by default, and who.

    A tuple is of a chain of parts, such as ``elbo+proximal``.
    """

    partition: Annotated[Partition, "iid", SERVER]
    """how the training data are split over the clients"""
    architecture: Annotated[Architecture, "resnet20", PRETRAINS]
    """network architecture"""
    inference: Annotated[Inference, "flipout", PRETRAINS]
    """what the network's weights are"""
    sampling: Annotated[Sampling, "random", SERVER]
    """which clients take part in a round"""
    workload: Annotated[Workload, "equal"]
    """how many local epochs each client makes in a round"""
    pooling: Annotated[PoolingRule, "weighted-sum-of-normals", PRETRAINS]
    """how the clients' posteriors become one"""
    weighting: Annotated[Weighting, "train-size", SERVER]
    """what a client's weight in the pool is"""
    defence: Annotated[Defence, "none", SERVER]
    """what is done to posteriors before they are pooled"""
    server_optimizer: Annotated[ServerOptimizer, "none", SERVER]
    """what the server makes of the step to the pooled posterior"""
    broadcast: Annotated[Broadcast, "posterior"]
    """what of the global posterior clients are sent"""
    exchange: Annotated[Exchange, "direct"]
    """how clients' updates reach the pool"""
    refinement: Annotated[Refinement, "none", SERVER]
    """what the server does with the pooled posterior beyond pooling"""
    sampler: Annotated[Sampler, "gaussian", SERVER]
    """the distribution that an ensemble's samples are from"""
    prior: Annotated[Prior, "fixed"]
    """prior of variational clients"""
    shared: Annotated[SharedParameters, "all"]
    """which parameters travel; the others are a client's own, and never sent"""
    start: Annotated[Start, "posterior"]
    """where a client's optimizer begins in a round"""
    objective: Annotated[tuple[Term, ...], "elbo"]
    """what clients make small, a sum of terms"""
    correction: Annotated[Correction, "none"]
    """what a client adds to its gradients"""
    optimizer: Annotated[Optimizer, "adam", PRETRAINS]
    """what a training step does with the gradient"""
    personalization: Annotated[Personalization, "none"]
    """what model of its own a client trains and keeps"""
    personal_optimizer: Annotated[Optimizer, "adam"]
    """the optimizer of personal models"""
    schedule: Annotated[Schedule, "exponential"]
    """what becomes of the learning rate from round to round"""
    augmentation: Annotated[Augmentation, "none", PRETRAINS]
    """random changes of training images"""
    example_privacy: Annotated[ExamplePrivacy, "none"]
    """what protects single examples while a client trains"""
    student_augmentation: Annotated[Augmentation, "none", SERVER]
    """random changes of the images that the server's student learns from"""
    predictive: Annotated[Predictive, "posterior", SERVER]
    """what predicts, besides the posterior, when it is evaluated"""
    outgoing: Annotated[tuple[Outgoing, ...], "none"]
    """what is done to a client's update on its way out, one after the other"""
    closing: Annotated[tuple[Closing, ...], "none"]
    """what clients' sums over their data tell the final network, one after the other; where none is
    named, `bfl run` takes bayesian-head+feature-density"""
    attack: Annotated[Attack, "none"]
    """what hostile clients send"""
