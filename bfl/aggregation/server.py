"""Services of the server to its parts, what it tells them of a round, and who may use it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from bfl.aggregation.ensemble import Member
from bfl.aggregation.samplers import ClientModels, Sampler
from bfl.errors import RunError
from bfl.posteriors import Posterior

if TYPE_CHECKING:
    from bfl.aggregation.refinements.distillation import DistillationPlan
    from bfl.data.datasets.server_data import ServerData
    from bfl.evaluation.prediction.predictions import Predictions


class UsesServer:
    """A part of a kind that may ask the server; found by this class, before the first round.

    Attributes:
        needs_server: Whether it needs data and a network of the server's own.
    """

    needs_server: ClassVar[bool] = False

    def check(self, data: ServerData | None) -> None:
        """Raise, before the first round, what is wrong with the server's data.

        Raises:
            ConfigurationError: They do not serve.
        """
        return


Labels = tuple[int | str, ...]


@dataclass(frozen=True, eq=False)
class DistillationTask:
    """Task of a student that is trained on the server.

    Attributes:
        start: The posterior that it begins with; its variances stay as they are.
        targets: (N, C) float32 probabilities of the server's own N images.
        labels: What keys its randomness besides the seed.
    """

    start: Posterior
    targets: npt.NDArray[np.float32]
    plan: DistillationPlan
    seed: int
    labels: Labels


@dataclass(frozen=True)
class Distilled:
    """Result of a distillation.

    Attributes:
        before: The cross-entropy of the first posterior to the targets, in nats per image, without
            augmentation.
        collected: How many models it is the mean of; 0 without averaging.
    """

    posterior: Posterior
    before: float
    after: float
    collected: int = 0


class Server(Protocol):
    """The server's own data and network.

    Its implementation with Keras is ``bfl.experiments.run.evaluator``.
    """

    @property
    def data(self) -> ServerData | None:
        """The server's own images; None if it has none."""

    @property
    def classes(self) -> int:
        """The number C of classes."""

    def predict(self, posterior: Posterior, *, labels: Labels) -> Predictions:
        """Return what a posterior predicts for the server's own images; ``labels`` key draws.

        Raises:
            NotFiniteError: The logits of a draw are not finite.
        """

    def logits_at_mean(self, posterior: Posterior) -> npt.NDArray[Any]:
        """Return the logits (N, C) of the model at a posterior's mean for the server's own images.

        It is a network of points: nothing is drawn, and dropout is off.
        """

    def predict_ensemble(
        self, members: Iterable[Member], *, labels: Labels, images: Any = None
    ) -> Predictions:
        """Return the mean predictions of members, one at a time in memory.

        A member of a network with dropout predicts under one mask an image. Members whose logits
        are not finite are left out: ``samples`` of the result is the number of the others.

        Args:
            labels: What keys the draws of members that draw (dropout), besides the seed.
            images: Images (N, H, W, C); None for the server's own.

        Raises:
            NotFiniteError: The logits of no member are finite.
        """

    def member_logits(
        self, members: Iterable[Member], *, labels: Labels, images: Any = None
    ) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """Yield the name of each member and its logits (N, C); see ``predict_ensemble``."""

    def distil(self, task: DistillationTask) -> Distilled:
        """Train a student on the server's own images."""


def labelled_images(
    data: ServerData | None,
) -> tuple[npt.NDArray[np.uint8 | np.float32], npt.NDArray[Any]]:
    """Return the server's own images (N, H, W, C) and classes (N,), or other tasks' answers.

    Raises:
        RunError: It has none, or no labels of them; the part has to refuse that before round 1.
    """
    if data is None:
        raise RunError("the server has no images of its own")
    if data.labels is None:
        raise RunError("the server's images have no labels")
    return data.images, data.labels


@dataclass(frozen=True)
class ServerRound:
    """The server in one round, for a part that asks it something before there is a pool.

    Attributes:
        server_round: The round, from 1: it keys what is drawn.
    """

    server: Server
    server_round: int


@dataclass(frozen=True)
class RoundContext:
    """View of a pooled round for the parts of the server.

    Attributes:
        server_round: The round, from 1.
        previous: The global posterior that the clients were sent.
        pooled: What their updates were pooled to, after the server's step and the floor.
        sampler: The distribution of which members of ensembles are drawn.
        clients: The clients' models, for a part that ``needs_models``; None for any other.
        server: What the server can do; None where it has neither data nor a network.
    """

    seed: int
    server_round: int
    previous: Posterior
    pooled: Posterior
    sampler: Sampler
    clients: ClientModels | None = None
    server: Server | None = None

    @property
    def own_server(self) -> Server:
        """Services of the server.

        Raises:
            RunError: It has neither data nor a network; the part has to refuse that before round 1.
        """
        if self.server is None:
            raise RunError("the server has neither images of its own nor a network")
        return self.server

    @property
    def models(self) -> ClientModels:
        """The clients' models.

        Raises:
            RunError: The part has not declared that it needs them.
        """
        if self.clients is None:
            raise RunError("the clients' models were not kept; the part has to need them")
        return self.clients
