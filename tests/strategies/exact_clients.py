"""Federations by partitioned variational inference whose clients solve their problems exactly.

Everything but the solving is the product's: strategy, wire, and what clients keep.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy_clients import Faults, LocalTraining, PartFederation, no_faults
from small_federation import arguments

from bfl.aggregation.pooling import pooling_rules
from bfl.federation.parts import Arrays, Trained
from bfl.federation.sampling import Sampling, samplings
from bfl.federation.state import Snapshots
from bfl.federation.wire import TrainTask
from bfl.learning.priors import QuadraticPrior, priors
from bfl.posteriors import Posterior
from bfl.posteriors.posterior import NaturalParameters
from clients.state import PartStates
from strategies import PosteriorPooling
from strategies.run_support import Round

SCALE, SEED = 2.0, 3
PRIOR = priors.create("cavity", {"prior-scale": SCALE})


class Problem(Protocol):
    """A client's data."""

    @property
    def count(self) -> int:
        """The number of its examples."""

    def solve(self, prior: QuadraticPrior) -> Posterior:
        """Return the Gaussian with diagonal precision that minimises the free energy."""


def sampled(name: str, **settings: Any) -> Sampling:
    return samplings.create(name, {key.replace("_", "-"): v for key, v in settings.items()})


def training(problems: Sequence[Problem]) -> LocalTraining:
    """Return clients that solve their own problem exactly."""

    def solved(task: TrainTask, received: Posterior, beside: Arrays, states: PartStates) -> Trained:
        density = PRIOR.density(received, states.of_part(PRIOR))
        assert isinstance(density, QuadraticPrior)
        problem = problems[task.partition_id]
        own = problem.solve(density)
        return Trained(received, own, beside, problem.count, 1, 0.1, np.zeros(0, bool))

    return solved


def strategy(
    sampling: Sampling, damping: float = 1.0, least: float = 0.1, **more: Any
) -> PosteriorPooling:
    """Return the strategy; ``least`` is the share of its precision that a round leaves at least."""
    settings = {"damping": damping, "least-precision-share": least}
    return PosteriorPooling(
        **arguments(
            rule=pooling_rules.create("factor-changes", settings),
            weighting="train-size",
            sampling=sampling,
            parts=(PRIOR,),
            seed=SEED,
            scale_floor=0.0,
            **{"min_clients": 1, **more},
        )
    )


def factor_federation(
    folder: Path,
    sampling: Sampling,
    problems: Sequence[Problem],
    network: Posterior,
    faults: Faults = no_faults,
    order: Any = list,
    **settings: Any,
) -> PartFederation:
    """Return a federation; ``network`` is where a network would begin by itself."""
    return PartFederation(
        folder,
        lambda **given: strategy(sampling, **settings, **given),
        training(problems),
        len(problems),
        PRIOR.first_posterior(network),
        faults,
        order,
    )


def committed(folder: Path, done: Round) -> list[NaturalParameters]:
    """Return the clients' factors as they lie in their folders, changed as the server has told."""
    factors = []
    for k, (last, damping) in enumerate(
        zip(done.state.last_pooled, done.state.damping, strict=True)
    ):
        if not last:
            continue
        kept = Snapshots(folder / "clients" / f"client-{k:06d}", kept=3).at(int(last))
        assert kept is not None
        prefix = f"part.{PRIOR.state_name}."
        arrays = {name.removeprefix(prefix): array for name, array in kept.items()}
        factor = PRIOR.commit(arrays, float(damping))
        factors.append(
            NaturalParameters(factor["factor-weighted-mean"], factor["factor-precision"])
        )
    return factors
