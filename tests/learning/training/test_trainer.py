"""Local training against gradients, divergences and optimiser steps computed by hand."""

import numpy as np
import pytest
from trained_digits import (
    BATCH,
    INFERENCES,
    digits,
    make_task,
    network_of,
    record_order,
    trainer_of,
)

from bfl.learning.augmentations import augmentations
from bfl.learning.optimizers import optimizers
from bfl.posteriors import Posterior
from bfl.posteriors import divergence as divergences

pytestmark = pytest.mark.usefixtures("tensorflow")


# The objective and its gradient


SIGMA = 1e-6
"""So small that Flipout's perturbations turn no ReLU on or off, which gradients would show."""


@pytest.fixture(scope="module")
def received(tensorflow):
    """A posterior of next to no variance whose means are all different from 0."""
    initial = network_of("flipout").initial_posterior(0)
    rng = np.random.default_rng(0)
    mean = initial.mean + rng.normal(0, 0.02, initial.size)
    return Posterior(
        mean.astype(np.float32),
        np.full(initial.size, SIGMA**2, np.float32),
        (initial.point + rng.uniform(-0.2, 0.2, initial.point.size)).astype(np.float32),
    )


class ByHand:
    """NLL of batches in training mode and its gradients, by the network of point weights."""

    def __init__(self, received):
        self.manifest = network_of("flipout").manifest
        self.points = network_of("deterministic")
        self.received = received

    def batch(self, positions, weights):
        """Return the summed NLL, and the gradient of its mean by the parameters' names."""
        from bfl.keras import tf

        self.points.load_values(self.manifest, self.received.mean, self.received.point)
        images, labels = (array[positions] for array in digits())
        named = {p.name: p.value for p in self.points._parameters if "moving" not in p.name}
        with tf.GradientTape() as tape:
            logits = self.points.model(images.astype(np.float32) / 127.5 - 1, training=True)
            each = -tf.nn.log_softmax(logits).numpy()[np.arange(len(labels)), labels]
            logs = tf.gather(tf.nn.log_softmax(logits), labels, axis=1, batch_dims=1)
            mean = -tf.reduce_sum(logs * weights) / weights.sum()
        gradients = tape.gradient(mean, list(named.values()))
        return float((each * weights).sum()), dict(zip(named, gradients, strict=True))

    def moving_mean_after(self, positions, momentum):
        self.points.load_values(self.manifest, self.received.mean, self.received.point)
        images = digits()[0][positions].astype(np.float32) / 127.5 - 1
        layer, norm = (self.points.model.get_layer(name) for name in ("conv1", "conv1_norm"))
        features = layer(images).numpy().mean(axis=(0, 1, 2))
        return momentum * norm.moving_mean.numpy() + (1 - momentum) * features


def gradients_of(trainer):
    """Return what Adam's first moments hold, by variable."""
    trained = trainer.learner.optimized.trained
    return {id(one.variable): one.slots[0].numpy() for one in trained}


def assert_close(actual, expected, tolerance=2e-2):
    scale = np.abs(expected).max() + 1e-6
    np.testing.assert_allclose(actual / scale, expected / scale, atol=tolerance)


@pytest.mark.parametrize("scale", [0.02, 10.0])
def test_reported_loss_is_nll_plus_divergence_over_n(received, scale, monkeypatch):
    recorded = record_order(monkeypatch)
    trainer = trainer_of("flipout")
    result = trainer.train(*digits(), make_task(received, np.arange(100, 132), (0.0, scale)))
    order, weights = recorded[0]
    assert order.shape == (1, BATCH)
    summed, _ = ByHand(received).batch(order[0] + 100, weights[0])
    size = received.size
    divergence = divergences.divergence(
        received.mean, received.variance, np.zeros(size), np.full(size, scale**2)
    ).value
    assert result.divergence == pytest.approx(divergence, rel=1e-4)
    assert result.negative_log_likelihood == pytest.approx(summed / 32, rel=1e-3)
    assert result.objective == pytest.approx(summed / 32 + divergence / 32, rel=1e-3)


def test_losses_of_an_epoch_are_summed_over_the_examples(received, monkeypatch):
    recorded = record_order(monkeypatch)
    trainer, examples = trainer_of("flipout"), np.arange(33) * 7
    task = make_task(received, examples, epochs=2, rate=0.0)
    result = trainer.train(*digits(), task)
    order, weights = recorded[0]
    assert order.shape == (4, BATCH)
    assert weights.sum() == 66
    hand = ByHand(received)
    # The last epoch; the rate is 0, so nothing has moved but the moving statistics.
    summed = [hand.batch(examples[order[s]], weights[s])[0] for s in (2, 3)]
    assert result.negative_log_likelihood == pytest.approx(sum(summed) / 33, rel=1e-3)
    assert result.objective == pytest.approx((sum(summed) + result.divergence) / 33, rel=1e-4)
    assert result.posterior.mean.tobytes() == received.mean.tobytes()


@pytest.mark.parametrize("count", [32, 33])
def test_gradient_is_that_of_mean_nll_plus_divergence_over_n(received, count, monkeypatch):
    """Adam's moments after the only or the second step, against gradients taken by hand.

    With 33 examples the second step has one example, and 31 that only fill it up.
    """
    recorded = record_order(monkeypatch)
    trainer, examples, scale, mean = trainer_of("flipout"), np.arange(count) * 5, 0.3, 0.01
    trainer.train(*digits(), make_task(received, examples, (mean, scale), rate=0.0))
    moments = gradients_of(trainer)
    order, weights = recorded[0]
    hand = ByHand(received)
    steps = [hand.batch(examples[o], w)[1] for o, w in zip(order, weights, strict=True)]
    # m is 0.1 g₁ after one step, and 0.09 g₁ + 0.1 g₂ after two.
    shares = [0.1] if count == 32 else [0.09, 0.1]
    assert len(steps) == len(shares)
    checked = 0
    for parameter in trainer.network._parameters:
        if "moving" in parameter.name:
            continue
        expected = sum(
            share * step[parameter.name].numpy() for share, step in zip(shares, steps, strict=True)
        )
        if parameter.untransformed_scale is not None:
            # ∂KL/∂μ = (μ − m) / s²; ∂KL/∂ρ = (σ / s² − 1 / σ) ∂σ/∂ρ, ∂σ/∂ρ = 1 − exp(ε − σ).
            mu = parameter.value.numpy().astype(np.float64)
            expected = expected + sum(shares) * (mu - mean) / scale**2 / count
            slope = -np.expm1(np.finfo(np.float32).eps - SIGMA)
            by_rho = sum(shares) * (SIGMA / scale**2 - 1 / SIGMA) * slope / count
            moment = moments[id(parameter.untransformed_scale)]
            np.testing.assert_allclose(moment, by_rho, rtol=1e-2)
            checked += 1
        assert_close(moments[id(parameter.value)], expected)
        checked += 1
    assert checked == len(moments) == 16


def test_moving_statistics_follow_the_batches(received, monkeypatch):
    recorded = record_order(monkeypatch)
    trainer = trainer_of("flipout")
    result = trainer.train(*digits(), make_task(received, np.arange(32), rate=0.0))
    names = [p.name for p in trainer.network.manifest.point]
    parts = trainer.network.manifest.split(result.posterior.point, gaussian=False)
    expected = ByHand(received).moving_mean_after(recorded[0][0][0], 0.9)
    actual = parts[names.index("conv1_norm/moving_mean")]
    np.testing.assert_allclose(actual, expected, atol=1e-4)


# The optimiser


def replayed(trainer, received, optimizer_state, gradient, rate):
    """Return the trained values and the slots, by name, after one step on a given gradient."""
    from bfl.keras import tf

    task = make_task(received, np.arange(32), optimizer_state=optimizer_state)
    state, steps = task.optimizer_state, task.epochs * 32 // BATCH
    trainer.learner.begin(received, task.received, task.prior, state, steps)
    gradients = [tf.fill(v.shape, gradient) for v in trainer.network.trainable_variables]
    trainer.learner.optimized.step(gradients, 0, tf.constant(rate))
    return trainer.learner.optimized.state(1)


@pytest.mark.parametrize("optimizer", optimizers.names())
def test_what_an_optimizer_keeps_goes_on(optimizer):
    """Two rounds with the state handed on are one round of twice the steps; without, they differ.

    At a rate of 0 nothing moves, so that the slots alone say what the optimizer has seen.
    """
    trainer = trainer_of("deterministic", optimizer=optimizer)
    received = trainer.network.initial_posterior(0)
    none = replayed(trainer, received, {}, 1.0, 0.0)
    kept = replayed(trainer, received, none, 1.0, 0.0)
    again = replayed(trainer, received, {}, 1.0, 0.0)
    size = sum(int(np.prod(v.shape)) for v in trainer.network.trainable_variables)
    assert set(kept) == {*optimizers.get(optimizer).slots, "steps"}
    assert (int(none["steps"]), int(kept["steps"])) == (1, 2)
    for name in optimizers.get(optimizer).slots:
        assert kept[name].shape == (size,)
        assert np.abs(kept[name] - none[name]).max() > 1e-4
        np.testing.assert_array_equal(again[name], none[name])


@pytest.mark.parametrize("inference", INFERENCES)
def test_weight_decay_knows_kernels_and_untransformed_scales(inference):
    trainer = trainer_of(inference)
    network, trained = trainer.network, trainer.learner.optimized.trained
    scales = [p.untransformed_scale for p in network._parameters]
    expected = {id(variable) for variable in scales if variable is not None}
    assert {id(t.variable) for t in trained if t.scale} == expected
    assert bool(expected) == network.inference.gaussian
    kernels = [t.variable.shape.num_elements() for t in trained if t.kernel]
    assert sorted(kernels) == sorted(p.size for p in network.manifest if len(p.shape) > 1)


@pytest.mark.slow
def test_compiled_step_is_the_same_up_to_rounding():
    """Of point weights: XLA draws other random numbers than TensorFlow's own kernels."""
    from bfl.learning.training.trainer import LocalTrainer

    network = network_of("deterministic")
    received = network.initial_posterior(0)
    optimizer = optimizers.create("sgd", {"momentum": 0.0})
    task = make_task(received, np.arange(2 * BATCH), rate=0.1)
    moved = []
    for compiled in (False, True):
        trainer = LocalTrainer(
            network, BATCH, augmentations.create("none"), optimizer, compiled=compiled
        )
        moved.append(trainer.train(*digits(), task).posterior.point - received.point)
    largest = np.abs(moved[0]).max()
    assert largest > 0.01
    np.testing.assert_allclose(moved[1], moved[0], atol=1e-3 * largest)
    assert not np.array_equal(moved[0], moved[1]), "nothing was compiled"
