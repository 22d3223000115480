"""The Gaussians that the divergence is taken from."""

from dataclasses import fields

import numpy as np
import pytest

from bfl.learning.priors import NormalPrior, priors
from bfl.posteriors import Posterior


@pytest.fixture
def received():
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(size=20), rng.uniform(1e-6, 4, 20)
    return Posterior(mean.astype(np.float32), variance.astype(np.float32))


@pytest.mark.parametrize("name", priors.names())
def test_the_contract_of_every_prior(received, name):
    """Numbers that broadcast to the parameters, scales above 0, the same for the same posterior."""
    points = Posterior(np.zeros(0, np.float32), np.zeros(0, np.float32), np.ones(3, np.float32))
    for posterior in (received, points):
        before = posterior.digest()
        prior = priors.create(name)
        state = prior.begin_client(posterior)
        form = prior.density(posterior, state).standardize()
        for numbers in (form.centre, form.scale, form.sign, form.slope):
            assert np.isfinite(np.broadcast_to(numbers, posterior.mean.shape)).all()
        assert np.all(np.asarray(form.scale) > 0)
        assert np.isin(form.sign, (-1, 0, 1)).all()
        assert posterior.digest() == before
        again = priors.create(name).density(posterior, state).standardize()
        for field in fields(form):
            np.testing.assert_array_equal(getattr(again, field.name), getattr(form, field.name))


def test_fixed_is_the_papers_and_ignores_what_is_received(received):
    # Fischer et al. (2024), section 3.3: N(0, 100 I).
    assert priors.create("fixed").density(received, {}) == NormalPrior(0.0, 10.0)
    assert priors.create("fixed", {"prior-scale": 0.5}).density(received, {}) == NormalPrior(
        0.0, 0.5
    )


@pytest.mark.usefixtures("tensorflow")
def test_the_divergence_from_a_flat_prior_is_the_negative_entropy(received):
    """Up to ½ log 2π a parameter; its gradient is 0 by means and −1/σ by standard deviations."""
    from bfl.keras import tf
    from bfl.learning.networks.network import PriorVariables

    prior = PriorVariables(20)
    prior.assign(priors.create("flat").density(received, {}).standardize())
    mean, scale = tf.constant(received.mean), tf.constant(np.sqrt(received.variance))
    with tf.GradientTape() as tape:
        tape.watch([mean, scale])
        value = prior.divergence(mean, scale)
    by_mean, by_scale = tape.gradient(value, [mean, scale])
    entropy = 0.5 * np.log(2 * np.pi * np.e * received.variance.astype(np.float64)).sum()
    np.testing.assert_allclose(value, -entropy + 20 * 0.5 * np.log(2 * np.pi), rtol=1e-5)
    np.testing.assert_array_equal(by_mean, np.zeros(20))
    np.testing.assert_allclose(by_scale, -1 / scale.numpy(), rtol=1e-5)


@pytest.mark.parametrize("name", priors.names())
def test_first_posterior_is_the_networks_unless_the_prior_is_what_a_run_begins_with(received, name):
    initial = Posterior(received.mean, received.variance, np.ones(3, np.float32))
    before = initial.digest()
    first = priors.create(name).first_posterior(initial)
    first.check(like=initial)
    assert initial.digest() == before
    np.testing.assert_array_equal(first.point, initial.point)
    assert [getattr(first, v).dtype for v in ("mean", "variance", "point")] == [np.float32] * 3
    if name not in ("cavity", "duals"):
        assert first.digest() == before


def test_a_cavity_begins_with_the_prior_itself(received):
    """q = p ∏ t_k with factors that say nothing."""
    prior = priors.create("cavity", {"prior-scale": 0.5})
    first = prior.first_posterior(received)
    np.testing.assert_array_equal(first.mean, np.zeros(20))
    np.testing.assert_array_equal(first.variance, np.full(20, 0.25))
    density = prior.density(first, prior.begin_client(first))
    assert (density.slope == 0).all()
    np.testing.assert_array_equal(density.precision, np.full(20, 4.0))
