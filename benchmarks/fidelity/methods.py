"""Methods whose posteriors are compared: from clients' likelihoods to one Gaussian."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.linalg import block_diag

from benchmarks.fidelity.problems import (
    CLASSES,
    PRIOR_PRECISION,
    Gaussian,
    Likelihood,
    Logistic,
    joined,
)
from bfl.aggregation.pooling import DAMPING, pool, pooling_rules
from bfl.closing.heads import blocks_of, curvature_of
from bfl.federation.parts import Trained
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
NEWTON_RATE = 0.05
"""Share of a Newton step that a step of IVON's first round makes."""


def central(clients: Clients, generator: np.random.Generator) -> Gaussian:
    """Return the posterior of all data in one place; of logistic regression Laplace's."""
    return joined(clients).exact()


def one_round(rule: str, times: int = 1) -> Method:
    """Return a rule's pool of what clients make of the prior N(0, I), weighted by their examples.

    Args:
        rule: The rule's name.
        times: How often every client is counted.
    """

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
    """
    shape, sizes = clients[0].shape, [len(each.features) for each in clients]
    examples = sum(sizes)
    prior = np.zeros(shape), np.full(shape, PRIOR_PRECISION / examples)
    schedule, rule = schedules.get("cosine")(), pooling_rules.get("log-linear-pool")()
    found = Posterior(clients[0].start.ravel(), _prior(clients).variance / 25)
    for number in range(1, NEWTON_ROUNDS + 1):
        rate, sent = schedule.learning_rate(NEWTON_RATE, number, NEWTON_ROUNDS), []
        for each in clients:
            of_all = Gaussian.of(found, shape)
            begun = of_all.mean, 1.0 / (examples * of_all.variance)
            rates = [rate] * NEWTON_ROUND_STEPS
            mean, precision = each.ivon(*begun, examples, prior, rates, generator)
            sent.append(Posterior(mean.ravel(), 1.0 / (examples * precision).ravel()))
        found = pool(rule, sent, [float(size) for size in sizes], previous=found).posterior
    return Gaussian.of(found, shape)


def closing_heads(clients: Sequence[Logistic]) -> dict[str, Gaussian]:
    """Return the closing's last layers, whole and by blocks of classes, by name.

    A logistic regression is a last layer, here trained to the mode of all data. The prior's
    precision is the exact one, where a closing picks one by held-back examples.
    """
    mode = central(clients, np.random.default_rng(0)).mean
    sets, weights = mode.shape
    whole = np.zeros((sets, weights, weights))
    blocks = np.zeros((sets, CLASSES, weights // CLASSES, weights // CLASSES))
    for client in clients:
        for number, p in enumerate(client.residuals(mode)[1]):
            whole[number] += curvature_of(p, client.features)[0]
            blocks[number] += blocks_of(p, client.features)
    by_blocks = np.zeros_like(whole)
    for number, scaled in enumerate(blocks * CLASSES / (CLASSES - 1)):
        by_blocks[number] = block_diag(*scaled)
    prior = PRIOR_PRECISION * np.eye(weights)
    found = {"closing's head, whole": whole, "closing's head, by classes": by_blocks}
    return {name: Gaussian(mode, np.linalg.inv(each + prior)) for name, each in found.items()}


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


def _prior(clients: Clients) -> Posterior:
    size = int(np.prod(clients[0].shape))
    return Posterior(np.zeros(size), np.full(size, 1.0 / PRIOR_PRECISION))
