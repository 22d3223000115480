"""One round on a client, and the options that may add to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
from flwr.app import Context, Message, RecordDict

from bfl.configuration import Configuration
from bfl.federation.parts import Arrays, TwoSidedPart
from bfl.federation.wire import ARRAYS, Positions, TrainTask, posterior_from_arrays
from bfl.learning.training import LocalResult, LocalTask
from bfl.posteriors import Manifest, Posterior
from clients.node import Node

if TYPE_CHECKING:
    from bfl.learning.networks.network import Network
    from bfl.learning.training.trainer import LocalTrainer


@dataclass(kw_only=True)
class LocalRound:
    """One client's round while it is made; options change it.

    Attributes:
        examples: (N,) positions of the examples that the client trains on.
        received: The posterior of the client's network that the round begins with, once it is read.
        trainer_settings: More arguments of ``trainer_for``.
        local_settings: More fields of the ``LocalTask``.
        concluded: More fields of ``Trained``, for the parts of the method.
        state_of: Gives what a part of the method keeps, as the round begins.
        broadcast: What the server has sent besides the posterior.
        kept: What the client kept in the last round that the server has pooled.
        keeps: What it keeps of this round until the server has pooled it.
        extras: What it sends besides its posterior.
        manifest: The parameters that are sent, once the network is built.
        result: What training has given, once it is over.
        sent: The posterior that is sent, once training is over.
        metrics: What the client says in numbers.
    """

    message: Message
    context: Context
    task: TrainTask
    node: Node
    configuration: Configuration
    examples: Positions
    received: Posterior = field(init=False)
    trainer_settings: dict[str, Any] = field(default_factory=dict)
    local_settings: dict[str, Any] = field(default_factory=dict)
    concluded: dict[str, Any] = field(default_factory=dict)
    state_of: Callable[[TwoSidedPart], Arrays] = lambda part: {}
    broadcast: Arrays = field(default_factory=dict)
    kept: Arrays = field(default_factory=dict)
    keeps: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    extras: Mapping[str, Any] = field(default_factory=dict)
    trainer: LocalTrainer = field(init=False)
    manifest: Manifest = field(init=False)
    asked: LocalTask = field(init=False)
    result: LocalResult = field(init=False)
    sent: Posterior = field(init=False)
    metrics: dict[str, float | int] = field(init=False)

    @cached_property
    def global_posterior(self) -> Posterior:
        """The global posterior, as it was sent.

        The virtual client that pre-trains is sent all of it, whatever the broadcast.
        """
        arrays: Any = self.message.content[ARRAYS]
        if "variance" in self.configuration.broadcast.vectors:
            return posterior_from_arrays(arrays)
        initial = self.configuration.inference.initial_standard_deviation
        return posterior_from_arrays(arrays, initial**2)

    @property
    def network(self) -> Network:
        """The client's network, once it is built."""
        return self.trainer.network


class ClientOption:
    """Something that a client does besides training where a run, or its node, asks for it.

    The functions are called in this order; one that is not overridden does nothing. In those before
    training the first of a round's options comes first, and in ``conclude`` the last.
    """

    def begin(self, local: LocalRound) -> None:
        """Refuse the round, or take up what it needs, before there is a network."""

    def prepare(self, local: LocalRound) -> None:
        """Say what training does besides the rest, once there is a network."""

    def conclude(self, local: LocalRound) -> None:
        """Make of what was learnt what is sent and kept."""

    def answer(self, local: LocalRound, content: RecordDict) -> RecordDict:
        """Return the content of the client's answer, given what it would be otherwise."""
        return content
