"""Priors that are quadratics, and partitioned variational inference, in local training."""

from typing import Any

import numpy as np
import pytest
from one_layer import SHAPE, posterior_of, task_of, train, trainer_of
from pydantic import Field

from bfl.learning.objectives import Term, Value
from bfl.learning.priors import QuadraticPrior, priors
from bfl.learning.starts import starts
from bfl.posteriors import Posterior
from bfl.posteriors.divergence import divergence
from bfl.posteriors.posterior import NaturalParameters

pytestmark = pytest.mark.usefixtures("tensorflow")


# Priors that are quadratics


def factor_of(size: int, share: float) -> NaturalParameters:
    """Return a factor of up to a share of the precision 1; above 1 cavities are no densities."""
    rng = np.random.default_rng(9)
    precision = rng.uniform(0.1, share, size)
    return NaturalParameters(precision * rng.normal(size=size), precision)


def cavity_of(received: Posterior, factor: NaturalParameters) -> QuadraticPrior:
    state = {"factor-weighted-mean": factor.weighted_mean, "factor-precision": factor.precision}
    return priors.create("cavity").density(received, state)


def divergence_and_gradient(network: Any, q: Posterior, prior: Any) -> tuple[float, list[Any]]:
    """Return the divergence, and its gradients by means and by untransformed scales, (D,) each."""
    from bfl.keras import tf

    network.load(q)
    network.set_prior(prior)
    gaussian = network._gaussian
    with tf.GradientTape() as tape:
        network.logits(np.zeros((1, *SHAPE), np.float32), np.array([1, 2], np.int32), training=True)
        value = network.divergence()
    sources = [p.value for p in gaussian], [p.untransformed_scale for p in gaussian]
    found = tape.gradient(value, sources)
    return float(value), [np.concatenate([g.numpy().ravel() for g in each]) for each in found]


def test_divergence_from_a_cavity_that_is_a_density() -> None:
    """Against the closed form; and against an integral of one dimension, to trust the form."""
    network = trainer_of("flipout").network
    received, q = (posterior_of(network, seed) for seed in (1, 2))
    prior = cavity_of(received, factor_of(received.size, 0.8))
    assert (prior.precision > 0).all()
    value, _ = divergence_and_gradient(network, q, prior)
    mean = prior.centre + prior.slope / prior.precision
    expected = divergence(q.mean, q.variance, mean, 1 / prior.precision).value
    assert value == pytest.approx(expected, rel=1e-5)
    theta = np.linspace(-12, 12, 200_001)
    numerically = 0.0
    for d in range(received.size):
        log_q = -0.5 * (theta - q.mean[d]) ** 2 / q.variance[d] - 0.5 * np.log(q.variance[d])
        log_p = -0.5 * (theta - mean[d]) ** 2 * prior.precision[d]
        log_p += 0.5 * np.log(prior.precision[d])
        density = np.exp(log_q - 0.5 * np.log(2 * np.pi))
        numerically += np.trapezoid(density * (log_q - log_p), theta)
    assert value == pytest.approx(numerically, rel=1e-4)


@pytest.mark.parametrize("share", [0.8, 30.0])
def test_gradient_from_a_cavity_whatever_its_precisions(share: float) -> None:
    """∂/∂µ = Λ (µ − c) − s and ∂/∂σ = Λ σ − 1/σ; some precisions negative, and one 0."""
    network = trainer_of("flipout").network
    received, q = (posterior_of(network, seed) for seed in (1, 2))
    prior = cavity_of(received, factor_of(received.size, share))
    precision = prior.precision.copy()
    precision[0] = 0.0
    prior = QuadraticPrior(prior.centre, prior.slope, precision)
    assert (precision < 0).any() == (share > 1)
    value, (by_mean, by_rho) = divergence_and_gradient(network, q, prior)
    expected = precision * (q.mean - prior.centre) - prior.slope
    np.testing.assert_allclose(by_mean, expected, rtol=1e-4, atol=1e-5)
    sigma = np.sqrt(q.variance.astype(np.float64))
    slope = -np.expm1(-sigma)  # of softplus
    np.testing.assert_allclose(
        by_rho, (precision * sigma - 1 / sigma) * slope, rtol=1e-4, atol=1e-5
    )
    # Values are those of the pure form, but for a constant that no posterior changes.
    other = posterior_of(network, 3)
    difference = divergence_and_gradient(network, other, prior)[0] - value

    def pure(p: Posterior) -> float:
        variance, shift = p.variance.astype(np.float64), p.mean - prior.centre.astype(np.float64)
        crossed = 0.5 * prior.precision * (np.square(shift) + variance) - prior.slope * shift
        return float(crossed.sum()) - 0.5 * float(np.log(variance).sum())

    assert difference == pytest.approx(pure(other) - pure(q), rel=1e-4)


# Partitioned variational inference


class Conjugate(Term):
    """Data that see every parameter with Gaussian noise: ½ a (θ − y)², and the divergence."""

    precision: float = Field(1.0)
    seen: float = Field(0.0)

    def value(self, step: Any, inputs: Any, examples: Any) -> Value:
        from bfl.keras import tf

        mean, deviation = step.network._mean_and_deviation()
        error = tf.reduce_sum(tf.square(mean - self.seen) + tf.square(deviation))
        return Value(shared=0.5 * self.precision * error + step.divergence)


def test_trained_factors_multiply_to_the_exact_posterior() -> None:
    """Two clients with cavities, trained by descent: after each round q = p Π N(y_k, 1/a_k)."""
    data = (1.5, 2.0), (3.0, -0.4)
    clients = [
        trainer_of("flipout", normalized=False, objective=(Conjugate(precision=a, seen=y),))
        for a, y in data
    ]
    network, prior = clients[0].network, priors.create("cavity")
    size = network.manifest.gaussian_size
    start = starts.create("initial-network")
    natural = NaturalParameters(np.zeros(size), np.ones(size))  # p = N(0, 1)
    states = [prior.begin_client(posterior_of(network, 0)) for _ in clients]
    begun = [start.begin_client(posterior_of(network, 0)) for _ in clients]
    for _ in range(3):
        mean, variance = natural.moments()
        received = Posterior(
            mean.astype(np.float32), variance.astype(np.float32), np.zeros(0, np.float32)
        )
        changes = []
        for k, trainer in enumerate(clients):
            task = task_of(
                received,
                prior=prior.density(received, states[k]),
                start=start.begin(begun[k], received, lambda: network.initial_posterior(0)),
                examples=np.arange(1),
                epochs=400,
                learning_rate=0.1,
            )
            result = train(trainer, task)
            trained = result.to_trained(task, result.posterior, {})
            states[k] = prior.commit(prior.conclude(states[k], trained)[1], 1.0)
            begun[k] = start.commit(start.conclude(begun[k], trained)[1], 1.0)
            sent = NaturalParameters.of(result.posterior.mean, result.posterior.variance)
            changes.append(sent - NaturalParameters.of(received.mean, received.variance))
        for change in changes:
            natural = natural + change
        np.testing.assert_allclose(natural.precision, 1 + 1.5 + 3.0, rtol=1e-3)
        np.testing.assert_allclose(natural.weighted_mean, 1.5 * 2.0 - 3.0 * 0.4, atol=5e-3)
        for state, (a, y) in zip(states, data, strict=True):
            np.testing.assert_allclose(state["factor-precision"], a, rtol=2e-3)
            np.testing.assert_allclose(state["factor-weighted-mean"], a * y, atol=5e-3)
