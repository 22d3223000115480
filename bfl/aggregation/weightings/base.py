"""Base of weightings, a number per client, and those by the numbers of training examples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from bfl.aggregation.server import UsesServer
from bfl.errors import ConfigurationError
from bfl.posteriors.posterior import Posterior
from bfl.registry import Component, Registry

if TYPE_CHECKING:
    from bfl.aggregation.server import Server
    from bfl.data.datasets.server_data import ServerData

Array = npt.NDArray[np.float64]
Posteriors = Sequence[Posterior]
Reports = Sequence[Mapping[str, float]]
"""Measurements of each client, by name, with all that a scheme ``reads``."""


class Weighting(Component, UsesServer, ABC):
    """A scheme that gives each of K clients a weight ω_k, with Σ ω_k = 1.

    One that ``needs_server`` needs labelled images as well, and is a ``ServerWeighting``.

    Attributes:
        requires_gaussian: Whether it reads means and variances, and so says nothing about networks
            whose parameters are all points.
        requires_previous: Whether it needs the previous global posterior.
        counts_only: Whether a client's γ follows from its own number of examples and nothing else,
            so that it is known before the client has replied. ``gamma`` is then also called without
            posteriors. Where updates are masked a client finds it by itself: there its scale must
            not depend on who is weighed together either.
        reads: Names of the numbers, each at least 0, that it reads of what clients report.
    """

    requires_gaussian: ClassVar[bool] = False
    requires_previous: ClassVar[bool] = False
    counts_only: ClassVar[bool] = False
    reads: ClassVar[tuple[str, ...]] = ()

    def gamma(
        self, posteriors: Posteriors, num_examples: Sequence[int], previous: Posterior | None
    ) -> Array:
        """Return the clients' weights in any scale, (K,), of ``weigh``'s arguments, checked."""
        raise ValueError(f"{self.name} needs labelled images or reports; there is nothing")

    def weigh(
        self,
        posteriors: Posteriors,
        num_examples: Sequence[int],
        previous: Posterior | None = None,
        server: Server | None = None,
        reports: Reports = (),
    ) -> Array:
        """Return the clients' weights (K,), not negative, with sum 1.

        Args:
            num_examples: The K clients' numbers of training examples.
            previous: The previous global posterior.
            server: The server, for a scheme that ``needs_server``.
            reports: What each client has measured, for a scheme that ``reads`` some of it.

        Raises:
            PosteriorError: A posterior that the scheme reads is not valid or has another size.
            ValueError: Something that the scheme needs is missing, or it gives no weights.
        """
        if not posteriors or len(posteriors) != len(num_examples):
            raise ValueError(
                f"got {len(posteriors)} posteriors and {len(num_examples)} numbers of examples"
            )
        if self.requires_previous and previous is None:
            raise ValueError(f"{self.name} needs the previous global posterior; there is none")
        if self.requires_gaussian:
            if posteriors[0].size == 0:
                raise ValueError(f"{self.name} needs Gaussians; the network has only points")
            for posterior in (*posteriors, *([previous] if previous else [])):
                posterior.check(posteriors[0])
        if isinstance(self, ServerWeighting) and server:
            gamma = self.gamma_on_server(posteriors, server)
        elif isinstance(self, ReportWeighting) and reports:
            gamma = self.gamma_of_reports(reports, num_examples)
        else:
            gamma = self.gamma(posteriors, num_examples, previous)
        return self._normalise(gamma, len(num_examples))

    def weigh_counts(self, num_examples: Sequence[int]) -> Array:
        """Return what ``weigh`` does, before there are posteriors, for a scheme ``counts_only``."""
        assert self.counts_only
        return self._normalise(self.gamma((), num_examples, None), len(num_examples))

    def gamma_of_count(self, num_examples: int) -> float:
        """Return the γ of one client, which it can find itself, for a scheme ``counts_only``."""
        assert self.counts_only
        return float(self.gamma((), [num_examples], None)[0])

    def _normalise(self, gamma: Array, count: int) -> Array:
        # An assignment to float64 would drop imaginary parts.
        if np.shape(gamma) != (count,) or np.asarray(gamma).dtype.kind not in "fiu":
            raise ValueError(
                f"{self.name} gives weights of shape {np.shape(gamma)} and type "
                f"{np.asarray(gamma).dtype}; expected real numbers ({count},)"
            )
        gamma = np.asarray(gamma, np.float64)
        total = float(gamma.sum())
        if not (np.isfinite(total) and total > 0 and bool(np.all(gamma >= 0))):
            raise ValueError(f"{self.name} gives weights that cannot be normalised: {gamma}")
        return gamma / total

    def report_problem(self, report: Mapping[str, float]) -> str | None:
        """Return what a client's report lacks of what the scheme ``reads``; None for nothing."""
        missing = [name for name in self.reads if not report.get(name, -1.0) >= 0.0]
        if not missing:
            return None
        return f"weighting '{self.name}' needs a number of at least 0 as {', '.join(missing)}"

    def check(self, data: ServerData | None) -> None:
        """Raise a ConfigurationError, before the first round, if it lacks labelled images."""
        if self.needs_server and (data is None or data.labels is None):
            have = "there are none" if data is None else "those that it has have no labels"
            raise ConfigurationError(
                f"weighting '{self.name}' needs labelled images of the server's own, and {have}; "
                "set server-data, with server-labels=true"
            )

    def has(self) -> frozenset[str]:
        """Return whether the weights follow from the numbers of examples."""
        return frozenset({"weights-by-counts"}) if self.counts_only else frozenset()

    def requires(self) -> frozenset[str]:
        """Return that there are Gaussians, if it reads them, and that the server has its data."""
        own = {"server-images", "server-labels"} if self.needs_server else set()
        return frozenset(own | ({"gaussian"} if self.requires_gaussian else set()))


weightings: Registry[Weighting] = Registry("weighting", "bfl.aggregation.weightings")


@weightings.register("train-size", aliases=("fedavg",))
class TrainSize(Weighting):
    """A client's share of the training examples, ω_k = |D_k| / |D|.

    Source: Fischer et al. (2024), section 2.6.2, equation (19), after McMahan et al. (2017).
    """

    counts_only: ClassVar[bool] = True

    def gamma(
        self, posteriors: Posteriors, num_examples: Sequence[int], previous: Posterior | None
    ) -> Array:
        """Return the numbers of examples (K,)."""
        return np.asarray(num_examples, np.float64)


@weightings.register("equal")
class Equal(Weighting):
    """The same weight for every client, ω_k = 1/K.

    Source: Fischer et al. (2024), section 2.6.1, equation (18).
    """

    counts_only: ClassVar[bool] = True

    def has(self) -> frozenset[str]:
        """Return that all weights are equal, as well."""
        return super().has() | {"uniform-weights"}

    def gamma(
        self, posteriors: Posteriors, num_examples: Sequence[int], previous: Posterior | None
    ) -> Array:
        """Return ones (K,)."""
        return np.ones(len(num_examples))


class ServerWeighting(Weighting):
    """A scheme whose weights follow from what the server finds out about the clients' models."""

    needs_server: ClassVar[bool] = True

    @abstractmethod
    def gamma_on_server(self, posteriors: Posteriors, server: Server) -> Array:
        """Return the weights (K,) in any scale of checked posteriors, by labelled images."""

    def has(self) -> frozenset[str]:
        """Return that the server evaluates clients' models, for which they have to be whole."""
        return super().has() | {"evaluated-clients"}


class ReportWeighting(Weighting):
    """A scheme whose weights follow from what clients report, who may lie."""

    @abstractmethod
    def gamma_of_reports(self, reports: Reports, num_examples: Sequence[int]) -> Array:
        """Return the weights (K,) in any scale by reports, with all that the scheme ``reads``."""

    def excludes(self) -> frozenset[str]:
        """Return that clients have to say what they measure."""
        return super().excludes() | {"secret-measurements"}


def describe_weights(weights: Sequence[float] | npt.NDArray[np.floating]) -> dict[str, float]:
    """Return ``effective-clients`` and ``largest-weight`` of weights ω_k (K,) in any scale.

    The first is 1/Σ ω_k² with Σ ω_k = 1: K for equal weights, 1 where one client has them all (Kish
    1965, "Survey sampling").
    """
    shares = np.asarray(weights, np.float64)
    shares = shares / shares.max()
    shares = shares / shares.sum()
    return {
        "effective-clients": float(1.0 / np.sum(shares**2)),
        "largest-weight": float(shares.max()),
    }
