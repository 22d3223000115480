"""Bayesian ADMM through the product's whole round, on Bayesian linear regression.

Clients solve their own problem exactly, and the posterior of all data is known.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy_clients import Faults, PartFederation, no_faults
from test_partitioned_variational_inference import (
    ALL,
    DATA,
    NETWORK,
    Data,
    assert_close,
    make_data,
    posterior_of,
    random_faults,
)

from bfl.aggregation.server_optimizers import StepContext, server_optimizers
from bfl.configuration import resolve
from bfl.federation.parts import Arrays, Trained
from bfl.federation.wire import TrainTask
from bfl.learning.priors import QuadraticPrior
from bfl.posteriors import Posterior
from clients.state import PartStates
from strategies import make_strategy

K = len(DATA)


def federation(
    folder: Path, problems: list[Data], penalty: float, damping: float, faults: Faults = no_faults
) -> PartFederation:
    """Return a federation whose temperature is the penalty ρ, as is right for data that count."""
    given = {"seed": 3, "clients": K, "min-clients": 1.0, "prior-scale": 2.0, "scale-floor": 0.0}
    admm = {"strategy": "bayesian-admm", "admm-penalty": penalty, "temperature": penalty}
    configuration = resolve({**given, **admm, "dual-damping": damping})
    prior = configuration.prior

    def solved(task: TrainTask, received: Posterior, beside: Arrays, states: PartStates) -> Trained:
        density = prior.density(received, states.of_part(prior))
        assert isinstance(density, QuadraticPrior)
        data = problems[task.partition_id]
        # The likelihood to the power of 1 over the temperature.
        cold = Data(data.count, data.gram / penalty, data.moment / penalty)
        own = cold.solve(density)
        return Trained(received, own, beside, data.count, 1, 0.1, np.zeros(0, bool))

    def made(**run: Any) -> Any:
        examples = [np.arange(data.count) for data in problems]
        return make_strategy(configuration, 10, examples, **run)

    return PartFederation(folder, made, solved, K, prior.first_posterior(NETWORK), faults)


@pytest.mark.parametrize(("penalty", "damping"), [(1 / K, 1.0), (1.0, 1.0), (0.3, 0.7)])
def test_the_first_round_is_known_and_exact_for_a_penalty_of_one_over_the_clients(
    penalty: float, damping: float, tmp_path: Path
) -> None:
    """Clients have λ₀ + h_k / ρ, so with h = Σ h_k the server has λ₀ + (1 + γ) h / (1 + ρ K)."""
    (done,) = federation(tmp_path, DATA, penalty, damping).run(1)
    assert_close(done.posterior, posterior_of([(1 + damping) / (1 + penalty * K)] * K))


def test_it_ends_at_the_exact_mean_whatever_is_lost(tmp_path: Path) -> None:
    data = make_data(diagonal=False)
    done = federation(tmp_path, data, 0.5, 0.4, random_faults(ALL)).run(100)
    assert 0 < np.mean([len(each.clients) for each in done]) < K
    precision = np.eye(4) / 4 + sum(each.gram for each in data)
    exact = np.linalg.solve(precision, sum(each.moment for each in data))
    assert_close(done[-1].posterior, Posterior(exact, 1 / np.diag(precision)), 1e-6)


def test_a_step_that_would_lose_precision_is_shorter_for_all_parameters_alike() -> None:
    """Nine clients lose 0.6 of the first precision: 1 − 5.4 is left with the duals added."""
    sent = Posterior(np.zeros(2), np.ones(2))
    pooled = Posterior(np.zeros(2), np.array([1 / 0.4, 1 / 1.1]))
    admm = server_optimizers.create("bayesian-admm")
    kept, following = admm.apply({}, sent, pooled, StepContext(1, asked=9, pooled=9))
    np.testing.assert_allclose(kept["precision"], [-4.4, 1.9])
    alpha = 0.36 / 4.8  # which leaves a tenth of 0.4, and is less than 1 / (1 + 9)
    np.testing.assert_allclose(1 / following.variance, [0.04, 1.1 + alpha * 0.8])
