"""Cavities and changes of factors by themselves, on Bayesian linear regression.

The clients' own problem is solved exactly here, in closed form, from the quadratic prior that
``CavityPrior`` gives; everything else is the product's: factors, commits, pooling, damping.
"""

from dataclasses import dataclass, field

import numpy as np
import pytest

from bfl.aggregation.pooling import PoolingRule, pool, pooling_rules
from bfl.federation.parts import Arrays, Trained
from bfl.learning.priors import QuadraticPrior, priors
from bfl.posteriors import Posterior

D, NOISE = 4, 0.5
PRIOR = Posterior(np.zeros(D), np.full(D, 4.0))


@dataclass
class Client:
    """A client's sufficient statistics XᵀX/s² and Xᵀy/s², and what it keeps.

    With a diagonal XᵀX the mean-field optimum is the exact posterior.
    """

    gram: np.ndarray
    moment: np.ndarray
    state: Arrays | None = None
    kept: dict[int, Arrays] = field(default_factory=dict)

    def solve(self, prior: QuadraticPrior) -> Posterior:
        """Return the Gaussian with diagonal precision that minimises the free energy."""
        precision = prior.precision + np.diag(self.gram)
        linear = prior.slope + prior.precision * prior.centre + self.moment
        mean = np.linalg.solve(np.diag(prior.precision) + self.gram, linear)
        return Posterior(mean, 1.0 / precision)


def make_clients(diagonal: bool, seed: int = 0) -> list[Client]:
    """Return five clients with 3 to 40 observations each of one linear model."""
    generator = np.random.default_rng(seed)
    truth = generator.normal(size=D)
    clients = []
    for count in (4, 7, 12, 20, 40):
        design = generator.normal(size=(count, D)) * generator.uniform(0.3, 2.0, size=D)
        if diagonal:
            design = np.linalg.qr(design)[0] * generator.uniform(0.5, 3.0, size=D)
        targets = design @ truth + NOISE * generator.normal(size=count)
        clients.append(Client(design.T @ design / NOISE**2, design.T @ targets / NOISE**2))
    return clients


def exact(clients: list[Client]) -> Posterior:
    """Return the exact posterior of these clients' data, for diagonal Gram matrices."""
    precision = 1.0 / PRIOR.variance + sum(np.diag(c.gram) for c in clients)
    return Posterior(np.asarray(sum(c.moment for c in clients)) / precision, 1.0 / precision)


def mean_field(clients: list[Client]) -> Posterior:
    """Return the mean-field optimum of variational inference on all data together."""
    gram = sum(c.gram for c in clients)
    precision = np.diag(1.0 / PRIOR.variance) + gram
    mean = np.linalg.solve(precision, sum(c.moment for c in clients))
    return Posterior(mean, 1.0 / np.diag(precision))


class Federation:
    """A server and its clients; clients commit what a later task says was pooled."""

    def __init__(self, clients: list[Client], rule: PoolingRule) -> None:
        self.clients, self.rule = clients, rule
        self.posterior = PRIOR
        self.prior = priors.create("cavity")
        self.pooled: dict[int, tuple[int, float]] = {}  # client: last round pooled, its damping
        self.number = 0
        self.last: dict[str, float] = {}

    def round(self, asked: list[int], lost: tuple[int, ...] = ()) -> None:
        """Ask clients; the updates of some are lost on their way to the server."""
        self.number += 1
        received, arrived = self.posterior, []
        for k in asked:
            client = self.clients[k]
            if k in self.pooled:
                last, damping = self.pooled[k]
                state = self.prior.commit(client.kept[last], damping)
            else:
                state = self.prior.begin_client(received)
            density = self.prior.density(received, state)
            assert isinstance(density, QuadraticPrior)
            own = client.solve(density)
            trained = Trained(received, own, {}, 1, 1, 0.1, np.zeros(0, bool))
            sent, client.kept[self.number] = self.prior.conclude(state, trained)
            assert sent == {}
            if k not in lost:
                arrived.append((k, own))
        if not arrived:
            return
        pooled = pool(
            self.rule, [own for _, own in arrived], np.ones(len(arrived)), previous=received
        )
        self.posterior, self.last = pooled.posterior, pooled.diagnostics
        for k, _ in arrived:
            self.pooled[k] = (self.number, pooled.diagnostics["damping"])


def assert_close(found: Posterior, expected: Posterior, tolerance: float) -> None:
    np.testing.assert_allclose(found.mean, expected.mean, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found.variance, expected.variance, rtol=tolerance)


def undamped() -> PoolingRule:
    return pooling_rules.create("factor-changes", {"damping": 1.0})


def test_one_after_the_other_each_round_is_exact_for_the_clients_pooled_so_far() -> None:
    clients = make_clients(diagonal=True)
    federation = Federation(clients, undamped())
    for k in range(5):
        federation.round([k])
        assert_close(federation.posterior, exact(clients[: k + 1]), 1e-10)
    for k in (3, 0, 3, 4):  # data are not counted again
        federation.round([k])
        assert_close(federation.posterior, exact(clients), 1e-10)


def test_all_at_once_with_lost_updates_and_absences_never_counts_anything_twice() -> None:
    clients = make_clients(diagonal=True)
    federation = Federation(clients, undamped())
    seen: set[int] = set()
    chance = np.random.default_rng(1)
    for _ in range(30):
        asked = sorted(chance.choice(5, size=chance.integers(1, 6), replace=False).tolist())
        lost = tuple(k for k in asked if chance.random() < 0.4)
        federation.round(asked, lost)
        seen |= set(asked) - set(lost)
        if seen:
            assert_close(federation.posterior, exact([clients[k] for k in sorted(seen)]), 1e-10)
    assert seen == set(range(5))


def test_its_first_undamped_round_is_distributed_weight_consolidation() -> None:
    clients = make_clients(diagonal=False)
    federation = Federation(clients, undamped())
    federation.round(list(range(5)))
    start = federation.prior.begin_client(PRIOR)
    updates = [c.solve(federation.prior.density(PRIOR, start)) for c in clients]  # type: ignore[arg-type]
    rule = pooling_rules.create("distributed-weight-consolidation")
    expected = pool(rule, updates, np.ones(5), previous=PRIOR).posterior
    assert_close(federation.posterior, expected, 1e-12)


@pytest.mark.parametrize("cyclic", [True, False])
def test_correlated_designs_end_at_variational_inference_on_all_data(cyclic: bool) -> None:
    clients = make_clients(diagonal=False)
    rule = (
        undamped() if cyclic else pooling_rules.create("factor-changes", {"damping": 0.0})
    )  # ρ = 1/K
    federation = Federation(clients, rule)
    for number in range(400):
        federation.round([number % 5] if cyclic else list(range(5)))
    assert_close(federation.posterior, mean_field(clients), 1e-3)


def test_a_step_that_would_lose_precision_is_damped_for_all_parameters_alike() -> None:
    rule = pooling_rules.create("factor-changes", {"damping": 1.0})
    previous = Posterior(np.zeros(2), np.array([1.0, 1.0]))
    # Two clients that each lose 0.6 of the first precision: −1.2 in all; only 0.9 may go.
    update = Posterior(np.array([0.0, 1.0]), np.array([1 / 0.4, 1 / 3.0]))
    pooled = pool(rule, [update, update], np.ones(2), previous=previous)
    damping = 0.9 / 1.2
    assert pooled.diagnostics["damping"] == pytest.approx(damping)
    assert pooled.diagnostics["damped-further"] == 1.0
    np.testing.assert_allclose(
        1 / pooled.posterior.variance, [0.1, 1 + damping * 2 * 2.0], rtol=1e-12
    )
    gentle = pool(rule, [Posterior(np.zeros(2), np.full(2, 0.9))], [1.0], previous=previous)
    assert gentle.diagnostics["damping"] == 1.0
    assert gentle.diagnostics["damped-further"] == 0.0
