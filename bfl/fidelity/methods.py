"""Methods whose posteriors are compared: from clients' likelihoods to one Gaussian."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bfl.aggregation.pooling import DAMPING, pool, pooling_rules
from bfl.closing import closings
from bfl.closing.base import HEAD, Closing, Examples, Known, with_one
from bfl.closing.bayesian_head import draws
from bfl.closing.chain import asked, folded, measured
from bfl.federation.parts import Trained
from bfl.fidelity.problems import PRIOR_PRECISION, Array, Gaussian, Likelihood, joined
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
