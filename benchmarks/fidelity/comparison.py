"""Posteriors beside the exact one: variances, divergence, predictions and calibration by ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import chdtrc, softmax

from benchmarks.fidelity.methods import closing_heads, methods
from benchmarks.fidelity.network import network, network_features
from benchmarks.fidelity.problems import (
    LEAST_SIZE,
    MOST_R_HAT,
    PRIOR_PRECISION,
    Array,
    Classifier,
    Gaussian,
    Likelihood,
    Logistic,
    convergence,
    joined,
    linear,
    logistic,
    logistic_features,
    sampled,
)

ORTHOGONAL, CORRELATED, LOGISTIC = "orthogonal", "correlated", "logistic"
NETWORK = "network"
RATIO, KL, RANKS, VARIATION = "variance ratio", "KL", "p of ranks", "total variation"
PRIOR_COUNTED, DATA_COUNTED = "prior counted", "data counted"

PREDICTED, PREDICTED_DRAWS = 500, 4000
"""New inputs that are predicted, and the draws of weights for it."""

LOOKED_AT = 20
"""New inputs whose predictions tell whether a network's draws have converged."""

RANKED_DRAWS = 19
"""Draws among which the true weight is ranked: 20 ranks."""

ADDITIVE = 0.01
"""Largest relative error of a pooled precision that counts prior and data so many times."""

Row = dict[str, Any]


def compared(seed: int, *, quick: bool = False) -> tuple[list[Row], list[Row]]:
    """Return a row of numbers for each method, and one for each problem whose posterior is sampled.

    Args:
        seed: The seed of data and draws; at least 0.
        quick: With fewer simulated data sets and draws of the reference.
    """
    sizes = (500, 4, 2, 500) if quick else (4000, 32, 8, 1000)
    data_sets, classified, networks, draws = sizes
    generators = np.random.default_rng(seed).spawn(4)
    rows: dict[str, Row] = {name: {"method": name} for name in methods()}
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
    cases = (
        (LOGISTIC, logistic(classified, generators[2]).clients, logistic_features),
        (NETWORK, network(networks, generators[3]).clients, network_features),
    )
    references = []
    for (problem, clients, features), generator in zip(cases, generators[2:], strict=True):
        inputs = features(PREDICTED, generator)
        by_method, reference_row = _classified(clients, inputs, draws, seed, generator)
        references.append({"problem": problem, **reference_row})
        for name, numbers in by_method.items():
            row = rows.setdefault(name, {"method": name})
            row.update({f"{problem}: {what}": each for what, each in numbers.items()})
    return list(rows.values()), references


def _classified(
    clients: Sequence[Likelihood],
    features: Array,
    draws: int,
    seed: int,
    generator: np.random.Generator,
) -> tuple[dict[str, Row], Row]:
    """Return each method's numbers beside draws of the posterior of all data, and the draws' own.

    Weights of a network have no moments that mean anything: its hidden units may change places. Its
    draws have converged where its predictions have.
    """
    likelihood = joined(clients)
    assert isinstance(likelihood, Classifier)
    chains = sampled(likelihood, draws, seed)
    watched = chains
    if not isinstance(likelihood, Logistic):
        watched = softmax(likelihood.logits(chains, features[:LOOKED_AT]), axis=-1)[..., 1]
    r_hat, size = convergence(watched)
    kept = (r_hat <= MOST_R_HAT) & (size >= LEAST_SIZE)
    row = {
        "data sets": len(kept),
        "kept": int(kept.sum()),
        "largest R-hat": float(r_hat[kept].max(initial=1.0)),
        "least effective size": float(size[kept].min(initial=np.inf)),
    }
    if not kept.any():
        return {}, row
    drawn = chains.reshape(-1, *likelihood.shape)
    exact = predicted(likelihood, drawn, features)[kept]
    # Variances and divergence are from the Gaussian with the moments of the draws.
    reference = Gaussian.fitted(drawn[:, kept])
    numbers: dict[str, Row] = {}
    posteriors = {name: method(clients, generator) for name, method in methods().items()}
    if isinstance(likelihood, Logistic):
        posteriors |= closing_heads([each for each in clients if isinstance(each, Logistic)])
    for name, found in posteriors.items():
        there = predicted(likelihood, found.draws(PREDICTED_DRAWS, generator), features)[kept]
        numbers[name] = {VARIATION: float(np.abs(there - exact).sum(axis=-1).mean() / 2)}
        if isinstance(likelihood, Logistic):
            converged = Gaussian(found.mean[kept], found.covariance[kept])
            ratio, nats = variance_ratio(converged, reference), divergence(converged, reference)
            numbers[name] = {RATIO: ratio, KL: nats, **numbers[name]}
    return numbers, row


def predicted(likelihood: Classifier, drawn: Array, features: Array) -> Array:
    """Return the mean probabilities (S, N, C) over draws (M, S, d) of weights."""
    total = sum(
        softmax(likelihood.logits(part, features), axis=-1).sum(axis=0) for part in chunks(drawn)
    )
    return np.asarray(total / len(drawn))


def chunks(drawn: Array, size: int = 200) -> list[Array]:
    """Return draws in parts of up to ``size``."""
    return [drawn[at : at + size] for at in range(0, len(drawn), size)]


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
