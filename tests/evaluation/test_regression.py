"""Mixtures of Gaussians against numerical integration, SciPy and draws."""

import numpy as np
import pytest
from scipy import integrate, stats

from bfl.data.datasets.encoding import Column
from bfl.errors import NotFiniteError
from bfl.evaluation.metrics import evaluate
from bfl.evaluation.regression import (
    Mixtures,
    MixtureStatistics,
    covered,
    ranked_probability_scores,
)
from bfl.experiments.results.summary import retention_curves

GENERATOR = np.random.default_rng(0)
MEANS = GENERATOR.normal(0.0, 2.0, (5, 4))
VARIANCES = GENERATOR.uniform(0.2, 3.0, (5, 4))
TARGETS = GENERATOR.normal(0.0, 3.0, 4)
MIXTURES = Mixtures(MEANS, VARIANCES)


def density(value: float, example: int) -> float:
    each = stats.norm.pdf(value, MEANS[:, example], np.sqrt(VARIANCES[:, example]))
    return float(each.mean())


def distribution(value: float, example: int) -> float:
    each = stats.norm.cdf(value, MEANS[:, example], np.sqrt(VARIANCES[:, example]))
    return float(each.mean())


def test_metrics_are_those_of_the_mixtures() -> None:
    found = evaluate(MIXTURES, TARGETS)
    logs = [-np.log(density(y, k)) for k, y in enumerate(TARGETS)]
    np.testing.assert_allclose(found["negative-log-likelihood"], np.mean(logs), rtol=1e-12)
    squares = (MEANS.mean(axis=0) - TARGETS) ** 2
    np.testing.assert_allclose(found["root-mean-squared-error"] ** 2, squares.mean(), rtol=1e-12)
    scores = ranked_probability_scores(MIXTURES, TARGETS)
    for example, target in enumerate(TARGETS):
        below, _ = integrate.quad(lambda z, k=example: distribution(z, k) ** 2, -40, target)
        above, _ = integrate.quad(lambda z, k=example: (1 - distribution(z, k)) ** 2, target, 40)
        np.testing.assert_allclose(scores[example], below + above, rtol=1e-6)


def test_variances_are_split_by_the_law_of_total_variance() -> None:
    def moment(power: int, example: int) -> float:
        return float(integrate.quad(lambda z: z**power * density(z, example), -60, 60)[0])

    whole = [moment(2, k) - moment(1, k) ** 2 for k in range(4)]
    found = MIXTURES.uncertainty
    np.testing.assert_allclose(found["predictive-variance"], whole, rtol=1e-6)
    np.testing.assert_allclose(found["aleatoric"] + found["epistemic"], whole, rtol=1e-6)
    same = Mixtures(np.ones((3, 2)), np.full((3, 2), 0.5))
    assert (same.epistemic == 0).all()


def test_intervals_cover_what_they_say() -> None:
    chosen = GENERATOR.integers(0, 5, 20_000)
    drawn = MEANS[chosen, 0] + np.sqrt(VARIANCES[chosen, 0]) * GENERATOR.normal(size=chosen.size)
    many = Mixtures(*(np.repeat(a[:, :1], chosen.size, axis=1) for a in (MEANS, VARIANCES)))
    assert abs(covered(many, drawn).mean() - 0.9) < 0.01


def test_the_interval_is_the_one_that_coverage_judges() -> None:
    lower, upper = MIXTURES.interval
    for example in range(4):
        assert distribution(lower[example], example) == pytest.approx(0.05, abs=1e-9)
        assert distribution(upper[example], example) == pytest.approx(0.95, abs=1e-9)
    within = 1e-6 * (upper - lower)
    for inner, outer in ((lower + within, lower - within), (upper - within, upper + within)):
        assert covered(MIXTURES, inner).all()
        assert not covered(MIXTURES, outer).any()
    alone = Mixtures(np.array([[1e6, -3.0]]), np.array([[1e-6, 4.0]]))
    right = stats.norm.interval(0.9, [1e6, -3.0], [1e-3, 2.0])
    np.testing.assert_allclose(alone.interval, right, rtol=1e-12)


def test_outputs_are_means_and_noise_in_the_unit_of_the_target() -> None:
    statistics = MixtureStatistics(Column("y", mean=100.0, deviation=10.0))
    statistics.add_logits([[0.5, 0.0], [-1.0, 2.0]])
    statistics.add_logits([[0.7, 0.0], [-1.0, 2.0]])
    found = statistics.result()
    np.testing.assert_allclose(found.mean, [106.0, 90.0])
    np.testing.assert_allclose(found.epistemic, [1.0, 0.0], atol=1e-12)
    noise = 100 * np.log1p(np.exp([0.0, 2.0]))
    np.testing.assert_allclose(found.aleatoric, noise, rtol=1e-5)
    with pytest.raises(NotFiniteError):
        statistics.add_logits([[np.inf, 0.0], [0.0, 0.0]])


def test_retention_is_by_predictive_variance() -> None:
    """Errors as large as the variances say: what is kept gets better the less is kept."""
    variances = np.linspace(0.1, 5.0, 200)[np.newaxis]
    targets = np.sqrt(variances[0])
    curves = retention_curves(Mixtures(np.zeros((1, 200)), variances), targets)
    kept = curves["squared-error"]["predictive-variance"].at(np.array([0.25, 0.5, 1.0]))
    np.testing.assert_allclose(kept[2], variances.mean(), rtol=1e-9)
    assert kept[0] < kept[1] < kept[2]
