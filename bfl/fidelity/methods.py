"""Methods whose posteriors are compared with the exact one, by four numbers.

From clients' likelihoods to one Gaussian; its variances, divergence, predictions and calibration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import chdtrc, expit, roots_hermitenorm

from bfl.aggregation.pooling import DAMPING, pool, pooling_rules
from bfl.closing import closings
from bfl.closing.base import HEAD, Closing, Examples, Known, with_one
from bfl.closing.bayesian_head import draws
from bfl.closing.chain import asked, folded, measured
from bfl.federation.parts import Trained
from bfl.fidelity.problems import (
    PRIOR_PRECISION,
    Array,
    Gaussian,
    Likelihood,
    Logistic,
    joined,
    linear,
    logistic,
    logistic_features,
    sampled,
)
from bfl.learning.priors import CavityPrior
from bfl.learning.schedules import schedules
from bfl.posteriors import Posterior

Clients = Sequence[Likelihood]
Method = Callable[[Clients, np.random.Generator], Gaussian]

CENTRAL, PARTITIONED, NEWTON = "central", "partitioned variational inference", "IVON"
PLANTED = "data counted twice (planted)"
CONSOLIDATION = "distributed-weight-consolidation"
FACTORS = "factor-changes"

ROUNDS = 60
"""Rounds of partitioned variational inference, damped by 1 over the number of clients."""

NEWTON_ROUNDS, NEWTON_ROUND_STEPS = 20, 100
NEWTON_RATE, NEWTON_DECAY = 0.05, 0.998
"""Share of a Newton step that a step of IVON's first round makes, and β₂."""


def central(clients: Clients, generator: np.random.Generator) -> Gaussian:
    """Return the posterior of all data in one place; of logistic regression Laplace's."""
    return joined(clients).exact()


def one_round(rule: str, times: int = 1) -> Method:
    """Return a rule's pool of clients' posteriors from the prior N(0, I), weighted by examples."""

    def pooled(clients: Clients, generator: np.random.Generator) -> Gaussian:
        prior = _prior(clients)
        zeros = np.zeros(clients[0].shape)
        sent = [each.mean_field(zeros, zeros + PRIOR_PRECISION) for each in clients] * times
        weights = [float(len(each.features)) for each in clients] * times
        part = pooling_rules.get(rule)()
        found = pool(part, sent, weights, previous=prior, generators=generator.spawn(len(sent)))
        return Gaussian.of(found.posterior, clients[0].shape)

    return pooled


def partitioned(clients: Clients, generator: np.random.Generator) -> Gaussian:
    """Return the fixed point of partitioned variational inference.

    A client fits cavity × likelihood by the diagonal Gaussian nearest to it, or to Laplace's.

    Source: Ashman et al. (2022), Algorithm 1.
    """
    rule = pooling_rules.get(FACTORS)(**{DAMPING: 0.0})
    cavity = CavityPrior(prior_scale=PRIOR_PRECISION**-0.5)
    found = cavity.first_posterior(_prior(clients))
    states = [cavity.begin_client(found) for _ in clients]
    for _ in range(ROUNDS):
        sent, kept = [], []
        for each, state in zip(clients, states, strict=True):
            density = cavity.density(found, state)
            natural = density.slope + density.precision * density.centre
            fitted = each.mean_field(*(v.reshape(each.shape) for v in (natural, density.precision)))
            none = np.zeros(0, np.bool_)
            trained = Trained(found, fitted, {}, len(each.features), 1, 0.0, none)
            kept.append(cavity.conclude(state, trained)[1])
            sent.append(fitted)
        pooled = pool(rule, sent, [1.0] * len(sent), previous=found, unrounded=found)
        states = [cavity.commit(each, pooled.diagnostics[DAMPING]) for each in kept]
        found = pooled.posterior
    return Gaussian.of(found, clients[0].shape)


def newton(clients: Clients, generator: np.random.Generator) -> Gaussian:
    """Return IVON's posterior: the steps of all clients, log-linear pools, a cosine of rates.

    A client's likelihood counts the examples of all clients; a batch is all of its own.

    Source: Shen et al. (2024), Algorithm 1; see ``bfl.learning.optimizers.ivon``.
    """
    shape, sizes = clients[0].shape, [len(each.features) for each in clients]
    examples = sum(sizes)
    prior = PRIOR_PRECISION / examples
    schedule, rule = schedules.get("cosine")(), pooling_rules.get("log-linear-pool")()
    found = Posterior(np.zeros(clients[0].shape).ravel(), _prior(clients).variance / 25)
    for number in range(1, NEWTON_ROUNDS + 1):
        rate, sent = schedule.learning_rate(NEWTON_RATE, number, NEWTON_ROUNDS), []
        for each, size in zip(clients, sizes, strict=True):
            mean = found.mean.reshape(shape)
            precision = 1.0 / (examples * found.variance.reshape(shape))
            momentum = np.zeros(shape)
            for step in range(1, NEWTON_ROUND_STEPS + 1):
                away = generator.standard_normal(shape) / np.sqrt(examples * precision)
                gradient = -each.derivatives(mean + away)[0] / size
                change = gradient * away * examples * precision + prior - precision
                momentum = 0.9 * momentum + 0.1 * gradient
                share = 1.0 - NEWTON_DECAY
                precision = precision + share * change + (share * change) ** 2 / (2.0 * precision)
                along = momentum / (1.0 - 0.9**step) + prior * mean
                mean = mean - rate * along / precision
            sent.append(Posterior(mean.ravel(), 1.0 / (examples * precision).ravel()))
        found = pool(rule, sent, [float(size) for size in sizes], previous=found).posterior
    return Gaussian.of(found, shape)


def closed(curvature: str, samples: int = 20_000) -> Method:
    """Return the Bayesian head of the closing round on a logistic regression.

    It begins at the average of the clients' modes, and finds the prior's precision by its evidence.
    With two classes the log-odds' weights are the difference of the classes' weights, whose moments
    are those of ``samples`` draws. Each data set has a head of its own.
    """
    chain: tuple[Closing, ...] = (
        closings.get("bayesian-head")(head_curvature=curvature, head_prior="zero"),
    )

    def of_one(start: Array, data: list[Examples], generator: np.random.Generator) -> Gaussian:
        known: Known = {HEAD: np.stack([-start / 2, start / 2], axis=1)}
        while asked(chain, known):
            sums = np.sum([measured(chain, known, each, each) for each in data], axis=0)
            known = folded(chain, known, sums, len(start) - 1, 2)
        drawn = np.stack([each[:, 1] - each[:, 0] for each in draws(known, samples, generator)])
        return Gaussian(known[HEAD][:, 1] - known[HEAD][:, 0], np.cov(drawn.T))

    def found(clients: Clients, generator: np.random.Generator) -> Gaussian:
        starts = one_round("naive-weighted-averaging")(clients, generator).mean
        labels = [each.targets.astype(np.int64) for each in clients]
        inputs = [with_one(each.features[:, :-1]) for each in clients]
        heads = [
            of_one(
                start,
                [Examples(x, y[number], 2) for x, y in zip(inputs, labels, strict=True)],
                generator,
            )
            for number, start in enumerate(starts)
        ]
        return Gaussian(
            np.stack([each.mean for each in heads]), np.stack([each.covariance for each in heads])
        )

    return found


def methods() -> dict[str, Method]:
    """Return the methods for all problems, by name: those of the registry among them."""
    rules = [name for name in pooling_rules.names() if name != FACTORS]
    return {
        CENTRAL: central,
        PARTITIONED: partitioned,
        NEWTON: newton,
        **{name: one_round(name) for name in rules},
        # Consolidation takes the surplus priors off, and leaves the data of each client twice.
        PLANTED: one_round(CONSOLIDATION, times=2),
    }


def classifiers() -> dict[str, Method]:
    """Return the methods that are for classifiers alone, by name."""
    return {f"closing round, {form}": closed(form) for form in ("full", "blocks", "kronecker")}


def _prior(clients: Clients) -> Posterior:
    size = int(np.prod(clients[0].shape))
    return Posterior(np.zeros(size), np.full(size, 1.0 / PRIOR_PRECISION))


ORTHOGONAL, CORRELATED, LOGISTIC = "orthogonal", "correlated", "logistic"
RATIO, KL, RANKS, VARIATION = "variance ratio", "KL", "p of ranks", "total variation"
PRIOR_COUNTED, DATA_COUNTED = "prior counted", "data counted"

RANKED_DRAWS = 19
"""Draws among which the true weight is ranked: 20 ranks."""

ADDITIVE = 0.01
"""Largest relative error of a pooled precision that counts prior and data so many times."""

Row = dict[str, Any]


def compared(seed: int, *, quick: bool = False) -> list[Row]:
    """Return a row of numbers for each method.

    Args:
        seed: The seed of data and draws; at least 0.
        quick: With fewer simulated data sets and draws of the reference.
    """
    data_sets, classified, draws = (500, 4, 250) if quick else (4000, 32, 2500)
    generators = np.random.default_rng(seed).spawn(3)
    rows: dict[str, Row] = {name: {"method": name} for name in (*methods(), *classifiers())}
    for problem, generator in zip((ORTHOGONAL, CORRELATED), generators[:2], strict=True):
        simulated = linear(data_sets, generator, correlated=problem == CORRELATED)
        reference = joined(simulated.clients).exact()
        # The same draws for all methods: whose posteriors agree, their ranks do.
        normal = generator.standard_normal((data_sets, RANKED_DRAWS))
        for name, method in methods().items():
            found = method(simulated.clients, generator)
            if problem == ORTHOGONAL:
                rows[name].update(counted(found, reference))
            numbers = {
                RATIO: variance_ratio(found, reference),
                KL: divergence(found, reference),
                RANKS: uniformity(found, simulated.weights, normal),
            }
            rows[name].update({f"{problem}: {what}": each for what, each in numbers.items()})
    for name, numbers in _logistic(classified, draws, seed, generators[2]).items():
        rows[name].update({f"{LOGISTIC}: {what}": each for what, each in numbers.items()})
    return list(rows.values())


def _logistic(
    data_sets: int, draws: int, seed: int, generator: np.random.Generator
) -> dict[str, Row]:
    clients = logistic(data_sets, generator).clients
    features = logistic_features(500, generator)
    likelihood = joined(clients)
    assert isinstance(likelihood, Logistic)
    drawn = sampled(likelihood, draws, seed)
    # Variances and divergence are from the Gaussian with the moments of the draws.
    away = drawn - drawn.mean(axis=0)
    covariance = np.einsum("msi,msj->sij", away, away) / (len(drawn) - 1)
    reference = Gaussian(drawn.mean(axis=0), covariance)
    exact = np.stack([expit(features @ each.T).mean(axis=1) for each in drawn.swapaxes(0, 1)])
    found = {
        name: each(clients, generator) for name, each in {**methods(), **classifiers()}.items()
    }
    return {
        name: {
            RATIO: variance_ratio(each, reference),
            KL: divergence(each, reference),
            VARIATION: float(np.abs(probabilities(each, features) - exact).mean()),
        }
        for name, each in found.items()
    }


def variance_ratio(found: Gaussian, exact: Gaussian) -> float:
    """Return the mean over data sets and weights of a marginal variance over the exact one."""
    return float((found.variance / exact.variance).mean())


def divergence(found: Gaussian, exact: Gaussian) -> float:
    """Return the mean over data sets of KL[found ‖ exact], in nats."""
    precision = np.linalg.inv(exact.covariance)
    away = found.mean - exact.mean
    trace = np.einsum("sij,sji->s", precision, found.covariance)
    square = np.einsum("si,sij,sj->s", away, precision, away)
    logs = np.linalg.slogdet(exact.covariance)[1] - np.linalg.slogdet(found.covariance)[1]
    return max(0.0, float((trace + square - away.shape[1] + logs).mean() / 2))


def uniformity(found: Gaussian, weights: Array, normal: Array) -> float:
    """Return the p-value of uniform ranks of true weights among draws of their posteriors.

    One weight of each data set is ranked, by turns, so that ranks are independent; the statistics
    of the weights are added up, lest one that is too wide makes up for one that is too narrow.

    Args:
        found: The posteriors of S data sets.
        weights: (S, d) what the data sets were drawn with.
        normal: (S, L) standard normal draws.

    Source: Talts et al. (2018), "Validating Bayesian inference algorithms with simulation-based
    calibration"; Pearson's chi-square test.
    """
    rows = np.arange(len(weights))
    turn = rows % weights.shape[1]
    scale = np.sqrt(found.variance[rows, turn])
    drawn = found.mean[rows, turn][:, None] + scale[:, None] * normal
    ranks = (drawn < weights[rows, turn][:, None]).sum(axis=1)
    counts = np.zeros((weights.shape[1], normal.shape[1] + 1))
    np.add.at(counts, (turn, ranks), 1)
    expected = np.broadcast_to(counts.mean(axis=1, keepdims=True), counts.shape)
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return float(chdtrc(counts.shape[0] * normal.shape[1], statistic))


def probabilities(found: Gaussian, features: Array) -> Array:
    """Return the means (S, N) of expit(θᵀx) over the posteriors of S data sets, by quadrature."""
    nodes, weights = roots_hermitenorm(64)
    spread = np.sqrt(np.einsum("ni,sij,nj->sn", features, found.covariance, features))
    logits = (found.mean @ features.T)[:, :, None] + spread[:, :, None] * nodes
    return np.asarray(expit(logits) @ weights / weights.sum())


def counted(found: Gaussian, exact: Gaussian) -> Row:
    """Return how many times the pooled precision counts the prior and the data.

    It is a · prior + b · data for all weights alike; else there is nothing to return.
    """
    precision = 1.0 / found.variance.mean(axis=0)
    prior = np.full_like(precision, PRIOR_PRECISION)
    parts = np.stack([prior, 1.0 / exact.variance.mean(axis=0) - PRIOR_PRECISION], axis=1)
    times = np.linalg.lstsq(parts / precision[:, None], np.ones_like(precision), rcond=None)[0]
    if np.abs(parts @ times / precision - 1.0).max() > ADDITIVE:
        return {}
    return {PRIOR_COUNTED: float(times[0]), DATA_COUNTED: float(times[1])}
