"""Posteriors beside the exact one: variances, divergence, predictions and calibration by ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import chdtrc, expit, roots_hermitenorm

from benchmarks.fidelity.methods import methods
from benchmarks.fidelity.network import network, network_features
from benchmarks.fidelity.problems import (
    PRIOR_PRECISION,
    Array,
    Classifier,
    Gaussian,
    Likelihood,
    Logistic,
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

PREDICTED, PREDICTED_DRAWS = 500, 2000
"""New inputs that are predicted, and the draws of a network's weights for it."""

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
    sizes = (500, 4, 2, 250) if quick else (4000, 32, 8, 2500)
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
    for (problem, clients, features), generator in zip(cases, generators[2:], strict=True):
        classified_by = _classified(clients, features(PREDICTED, generator), draws, seed, generator)
        for name, numbers in classified_by.items():
            rows[name].update({f"{problem}: {what}": each for what, each in numbers.items()})
    return list(rows.values())


def _classified(
    clients: Sequence[Likelihood],
    features: Array,
    draws: int,
    seed: int,
    generator: np.random.Generator,
) -> dict[str, Row]:
    """Return each method's numbers beside draws of the posterior of all data.

    Weights of a network have no moments that mean anything: its hidden units may change places.
    """
    likelihood = joined(clients)
    assert isinstance(likelihood, Classifier)
    drawn = sampled(likelihood, draws, seed)
    exact = predicted(likelihood, drawn, features)
    # Variances and divergence are from the Gaussian with the moments of the draws.
    away = drawn - drawn.mean(axis=0)
    covariance = np.einsum("msi,msj->sij", away, away) / (len(drawn) - 1)
    reference = Gaussian(drawn.mean(axis=0), covariance)
    numbers: dict[str, Row] = {}
    for name, method in methods().items():
        found = method(clients, generator)
        if isinstance(likelihood, Logistic):
            found_there = probabilities(found, features)
            moments = {RATIO: variance_ratio(found, reference), KL: divergence(found, reference)}
        else:
            found_there = predicted(likelihood, found.draws(PREDICTED_DRAWS, generator), features)
            moments = {}
        numbers[name] = {**moments, VARIATION: float(np.abs(found_there - exact).mean())}
    return numbers


def predicted(likelihood: Classifier, drawn: Array, features: Array) -> Array:
    """Return the mean probability (S, N) of class 1 over draws (M, S, d) of weights."""
    total = sum(expit(likelihood.logits(part, features)).sum(axis=0) for part in chunks(drawn))
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
