"""Partitioned variational inference where the posterior is no Gaussian: logistic regression.

The likelihood of an example depends on θ through x·θ alone, which is one Gaussian number under a
diagonal Gaussian: its expectations are integrals over a line, so that a client can solve for its
q_k to many digits. A fixed point of the federation is then one of variational inference on all
data together (Bui et al., 2018, property 2; Ashman et al., 2022, property 2.2), which here is
found by another algorithm from the free energy itself.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy_clients import Fault
from scipy.optimize import minimize
from scipy.special import expit
from test_partitioned_variational_inference import SCALE, committed, factor_federation, sampled

from bfl.learning.priors import QuadraticPrior
from bfl.posteriors import Posterior
from bfl.posteriors.posterior import NaturalParameters

D, COUNTS = 3, (6, 15, 30, 60)
NETWORK = Posterior(np.full(D, 0.5), np.full(D, 0.01), np.zeros(0))
ALL = sampled("random")


def nodes_and_weights(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return Gauss-Hermite nodes (Q,) and weights (Q,) for a standard normal."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(number)
    return nodes, weights / weights.sum()


@dataclass(frozen=True)
class Logistic:
    """Observations y = ±1 with p(y | θ) = 1 / (1 + exp(−y x·θ)): (N, D) of y x."""

    signed: np.ndarray

    @property
    def count(self) -> int:
        return len(self.signed)

    def solve(self, prior: QuadraticPrior) -> Posterior:
        """Return q, by Newton's steps for the mean and the variance that belongs to each.

        With f(z) = log(1 + e^−z): ∂/∂μ E f = Σ x E f′ and 2 ∂/∂σ² E f = Σ x² E f″ (theorems of
        Bonnet and Price), so that 1/σ² = Λ + Σ x² E f″ where the free energy is least.
        """
        nodes, weights = nodes_and_weights(60)
        mean, variance = np.zeros(D), np.full(D, SCALE**2)
        for _ in range(200):
            spread = np.sqrt(np.square(self.signed) @ variance)
            share = expit(-((self.signed @ mean)[:, None] + spread[:, None] * nodes))
            slope, curvature = -share @ weights, (share * (1.0 - share)) @ weights
            gradient = prior.precision * (mean - prior.centre) - prior.slope
            gradient += self.signed.T @ slope
            hessian = np.diag(prior.precision) + (self.signed.T * curvature) @ self.signed
            step = np.linalg.solve(hessian, gradient)
            following = 1.0 / np.diag(hessian)
            moved = max(np.abs(step).max(), np.abs(following / variance - 1.0).max())
            mean, variance = mean - step, following
            if moved < 1e-12:
                return Posterior(mean, variance, np.zeros(0))
        raise AssertionError("Newton's steps have not come to rest")

    def free_energy(self, mean: np.ndarray, scale: np.ndarray) -> float:
        """Return KL[q ‖ p] − E log p(y | θ), up to a constant, with p = N(0, SCALE²)."""
        nodes, weights = nodes_and_weights(48)
        spread = np.sqrt(np.square(self.signed) @ np.square(scale))
        margins = (self.signed @ mean)[:, None] + spread[:, None] * nodes
        expected = np.logaddexp(0.0, -margins) @ weights
        prior = 0.5 * (np.square(mean) + np.square(scale)) / SCALE**2
        return float(expected.sum() + prior.sum() - np.log(scale).sum())

    def together(self) -> Posterior:
        """Return the least free energy's q, from its values alone."""

        def energy(both: np.ndarray) -> float:
            return self.free_energy(both[:D], np.exp(both[D:]))

        found = minimize(energy, np.zeros(2 * D), jac="3-point", options={"gtol": 1e-7}).x
        return Posterior(found[:D], np.exp(2.0 * found[D:]), np.zeros(0))


def make_data() -> list[Logistic]:
    """Return the clients' data: inputs that are correlated and shifted by client."""
    generator = np.random.default_rng(1)
    truth = np.array([1.0, -2.0, 0.5])
    mixing = np.array([[1.0, 0.4, 0.0], [0.0, 0.9, 0.25], [0.0, 0.0, 1.2]])
    found = []
    for count in COUNTS:
        inputs = (generator.normal(size=(count, D)) + generator.normal(size=D)) @ mixing
        labels = np.where(generator.random(count) < expit(inputs @ truth), 1.0, -1.0)
        found.append(Logistic(labels[:, None] * inputs))
    return found


DATA = make_data()
ALL_DATA = Logistic(np.concatenate([data.signed for data in DATA]))


@pytest.fixture(scope="module")
def together() -> Posterior:
    return ALL_DATA.together()


def distance(first: Posterior, second: Posterior) -> float:
    """Return the greatest difference of means in standard deviations, and of log variances."""
    means = np.abs(first.mean - second.mean) / np.sqrt(second.variance)
    return float(max(means.max(), np.abs(np.log(first.variance / second.variance)).max()))


def lost(server_round: int, partition_id: int) -> Fault:
    """Lose a third of all replies, and refuse a few."""
    return ("", "", "lost", "", "", "refused", "late")[(3 * server_round + partition_id) % 7]


@pytest.mark.parametrize(("damping", "rounds"), [(0.0, 80), (0.5, 60)])
def test_logistic_regression_ends_where_variational_inference_on_all_data_does(
    damping: float, rounds: int, together: Posterior, tmp_path: Path
) -> None:
    made = factor_federation(tmp_path, ALL, DATA, NETWORK, damping=damping, faults=lost)
    done = made.run(rounds)
    assert distance(done[-1].posterior, together) < 1e-4
    # The proof can fail: it takes the rounds, and clients that know what they have said.
    assert distance(done[0].posterior, together) > 0.1
    product = sum(
        committed(tmp_path, done[-1]), start=NaturalParameters(np.zeros(D), np.full(D, SCALE**-2))
    )
    np.testing.assert_allclose(1.0 / product.precision, done[-1].posterior.variance, rtol=1e-10)


def test_the_two_solvers_agree_and_are_no_laplace_approximation(together: Posterior) -> None:
    prior = QuadraticPrior(np.zeros(D), np.zeros(D), np.full(D, SCALE**-2))
    assert distance(ALL_DATA.solve(prior), together) < 1e-4
    mode = np.zeros(D)
    for _ in range(50):
        share = expit(-ALL_DATA.signed @ mode)
        hessian = (ALL_DATA.signed.T * (share * (1 - share))) @ ALL_DATA.signed
        hessian += np.eye(D) / SCALE**2
        mode -= np.linalg.solve(hessian, mode / SCALE**2 - ALL_DATA.signed.T @ share)
    laplace = Posterior(mode, 1.0 / np.diag(hessian), np.zeros(0))
    assert distance(laplace, together) > 0.05
