"""The floor of pooled standard deviations: what it changes, and that training can leave it."""

import numpy as np
import pytest

from bfl.learning.networks.parametrizations import SMALLEST_SCALE, SOFTPLUS
from bfl.learning.optimizers import TrainedVariable, optimizers
from bfl.posteriors import Posterior
from bfl.posteriors.posterior import FRACTION_AT_FLOOR, SCALE_FLOOR, with_scale_floor

DEVIATIONS = np.array([1e-12, 9e-6, 1e-5, 1.1e-5, 0.1], np.float32)


def posterior_of(deviations):
    variance = np.square(np.asarray(deviations, np.float64)).astype(np.float32)
    return Posterior(np.arange(len(variance), dtype=np.float32), variance, np.ones(3, np.float32))


def test_smaller_standard_deviations_are_raised_and_the_others_keep_their_bits():
    given = posterior_of(DEVIATIONS)
    before = given.digest()
    floored, diagnostics = with_scale_floor(given, 1e-5)
    deviations = np.sqrt(floored.variance)
    np.testing.assert_allclose(deviations, np.maximum(DEVIATIONS, 1e-5), rtol=1e-6)
    np.testing.assert_array_equal(floored.variance[3:], given.variance[3:])
    assert floored.variance.dtype == np.float32
    assert floored.mean is given.mean
    assert floored.point is given.point
    assert diagnostics == {FRACTION_AT_FLOOR: 3 / 5}
    assert given.digest() == before
    again, same = with_scale_floor(floored, 1e-5)
    assert (again.digest(), same) == (floored.digest(), diagnostics)


@pytest.mark.parametrize("floor", [0.0, 1e-13])
def test_a_floor_below_all_changes_no_bit(floor):
    given = posterior_of(DEVIATIONS)
    expected = {FRACTION_AT_FLOOR: 0.0} if floor else {}
    assert with_scale_floor(given, floor) == (given, expected)


def test_points_have_no_floor():
    points = Posterior(np.zeros(0, np.float32), np.zeros(0, np.float32), np.ones(4, np.float32))
    assert with_scale_floor(points, 1e-5) == (points, {})


@pytest.mark.parametrize("floor", [-1e-9, np.inf, np.nan])
def test_a_floor_that_is_none_is_refused(floor):
    with pytest.raises(ValueError, match="expected at least 0"):
        with_scale_floor(posterior_of(DEVIATIONS), floor)


def grown(tensorflow, word, rate, variance, steps):
    """Return by how much log σ grows where a wide prior alone pulls: 5,000 examples, KL / N."""
    tf = tensorflow
    rho = tf.Variable(SOFTPLUS.untransformed(np.full(1, variance)).astype(np.float32))
    optimizer = optimizers.create(word)
    trained = TrainedVariable(
        rho, tuple(tf.Variable(tf.zeros_like(rho)) for _ in optimizer.slots), scale=True
    )
    before = float(np.sqrt(SOFTPLUS.variance(rho.numpy())[0]))

    @tf.function
    def step(number):
        with tf.GradientTape() as tape:
            sigma = np.finfo(np.float32).eps + tf.nn.softplus(rho)
            objective = (tf.square(sigma / 10.0) / 2 - tf.math.log(sigma / 10.0)) / 5000.0
        optimizer.step([trained], [tape.gradient(objective, rho)], number, tf.constant(rate))

    for number in range(steps):
        step(tf.constant(number))
    return float(np.log(np.sqrt(SOFTPLUS.variance(rho.numpy())[0]) / before))


@pytest.mark.parametrize(("word", "rate"), [("adam", 1e-3), ("sgd", 1e-2)])
def test_from_the_floor_training_moves_a_scale_as_fast_as_from_anywhere(word, rate, tensorflow):
    """And from where clients put it without a floor, it does not move at all."""
    steps = 300
    far_above = grown(tensorflow, word, rate, 1e-3**2, steps)
    at_floor = grown(tensorflow, word, rate, SCALE_FLOOR**2, steps)
    without = grown(tensorflow, word, rate, 1e-20, steps)
    assert far_above > 0.004
    assert at_floor == pytest.approx(far_above, rel=0.02)
    assert abs(without) < 1e-6 * far_above
    near = grown(tensorflow, word, rate, SMALLEST_SCALE**2, steps)
    assert abs(near) < 1e-6 * far_above
