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
    """A part of a kind that may ask the server, and whether it needs its data and network."""

    needs_server: ClassVar[bool] = False

    def check(self, data: ServerData | None) -> None:
        """Raise a ConfigurationError, before the first round, if the server's data do not serve."""
        return


Labels = tuple[int | str, ...]


@dataclass(frozen=True, eq=False)
class DistillationTask:
    """Task of a student on the server: from ``start``, whose variances stay, to ``targets``.

    Attributes:
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
    """The server's own data and network; ``bfl.experiments.run.evaluator`` has it in Keras."""

    @property
    def data(self) -> ServerData | None:
        """The server's own images; None if it has none."""

    @property
    def classes(self) -> int:
        """The number C of classes."""

    def logits_at_mean(self, posterior: Posterior) -> npt.NDArray[Any]:
        """Return the logits (N, C) of the network of points at a posterior's mean."""

    def predict_ensemble(self, members: Iterable[Member], *, labels: Labels) -> Predictions:
        """Return the mean predictions for the server's images, with one member in memory.

        A member of a network with dropout predicts under one mask an image; ``labels`` key its
        draws. Members whose logits are not finite are left out: ``samples`` of the result is the
        number of the others; NotFiniteError if there is none.
        """

    def member_logits(
        self, members: Iterable[Member], *, labels: Labels, images: Any = None
    ) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """Yield each member's name and logits (N, C); by default for the server's own images."""

    def distil(self, task: DistillationTask) -> Distilled:
        """Train a student on the server's own images."""


def labelled_images(
    data: ServerData | None,
) -> tuple[npt.NDArray[np.uint8 | np.float32], npt.NDArray[Any]]:
    """Return the server's own images (N, H, W, C) and answers (N,); RunError without any."""
    if data is None:
        raise RunError("the server has no images of its own")
    if data.labels is None:
        raise RunError("the server's images have no labels")
    return data.images, data.labels


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
        """Services of the server; RunError where it has neither data nor a network."""
        if self.server is None:
            raise RunError("the server has neither images of its own nor a network")
        return self.server

    @property
    def models(self) -> ClientModels:
        """The clients' models; RunError where the part has not declared that it needs them."""
        if self.clients is None:
            raise RunError("the clients' models were not kept; the part has to need them")
        return self.clients
