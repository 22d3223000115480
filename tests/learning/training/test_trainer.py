"""Local training against gradients, divergences and optimiser steps computed by hand."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bfl
from bfl.data.datasets import load_dataset
from bfl.data.datasets.cache import cached_dataset
from bfl.learning.augmentations import augmentations
from bfl.learning.inferences import inferences
from bfl.learning.models import create_architecture
from bfl.learning.optimizers import optimizers
from bfl.learning.priors import priors
from bfl.learning.priors.base import NormalPrior
from bfl.posteriors import Posterior
from bfl.posteriors import divergence as divergences

pytestmark = pytest.mark.usefixtures("tensorflow")

SHAPE = (8, 8, 1)
BATCH = 32
INFERENCES = ("deterministic", "flipout", "mc-dropout", "reparameterization")


def network_of(inference, **settings):
    from bfl.learning.networks.network import build_network

    chosen = inferences.create(inference, settings)
    return build_network(create_architecture("resnet8"), chosen, SHAPE, 10)


def trainer_of(inference, augmentation="none", optimizer="adam", **settings):
    from bfl.learning.training.trainer import local_trainer

    return local_trainer(
        network_of(inference, **settings),
        BATCH,
        augmentations.create(augmentation),
        optimizers.create(optimizer, settings),
    )


def digits():
    """Return the digits' training images and labels."""
    data = cached_dataset("digits", "")
    return data.train_images, data.train_labels


def make_task(
    received,
    examples,
    prior=(0.0, 10.0),
    epochs=1,
    rate=1e-3,
    labels=(1, 0),
    seed=0,
    optimizer_state=None,
):
    from bfl.learning.training import LocalTask

    return LocalTask(
        received=received,
        prior=NormalPrior(*prior) if isinstance(prior, tuple) else prior,
        examples=np.asarray(examples),
        epochs=epochs,
        learning_rate=rate,
        key_labels=labels,
        seed=seed,
        optimizer_state=optimizer_state or {},
    )


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


def record_order(monkeypatch):
    """Return a list that gets the order and the weights of each training."""
    from bfl.learning.training import trainer as module

    recorded, batches = [], module.batches

    def batches_and_record(*arguments):
        recorded.append(batches(*arguments))
        return recorded[-1]

    monkeypatch.setattr(module, "batches", batches_and_record)
    return recorded


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
        """Return the moving mean of the first normalisation after one batch."""
        self.points.load_values(self.manifest, self.received.mean, self.received.point)
        images = digits()[0][positions].astype(np.float32) / 127.5 - 1
        layer, norm = (self.points.model.get_layer(name) for name in ("conv1", "conv1_norm"))
        features = layer(images).numpy().mean(axis=(0, 1, 2))
        return momentum * norm.moving_mean.numpy() + (1 - momentum) * features


def gradients_of(trainer):
    """Return what Adam's first moments hold, by variable."""
    trained = trainer.meme.optimized.trained
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
    assert checked == len(moments) == 46


def test_moving_statistics_follow_the_batches(received, monkeypatch):
    recorded = record_order(monkeypatch)
    trainer = trainer_of("flipout")
    result = trainer.train(*digits(), make_task(received, np.arange(32), rate=0.0))
    names = [p.name for p in trainer.network.manifest.point]
    parts = trainer.network.manifest.split(result.posterior.point, gaussian=False)
    expected = ByHand(received).moving_mean_after(recorded[0][0][0], 0.9)
    actual = parts[names.index("conv1_norm/moving_mean")]
    np.testing.assert_allclose(actual, expected, atol=1e-4)


@pytest.mark.parametrize("inference", ["deterministic", "mc-dropout"])
def test_points_have_no_divergence(inference):
    trainer = trainer_of(inference)
    received = trainer.network.initial_posterior(0)
    result = trainer.train(*digits(), make_task(received, np.arange(40)))
    assert result.divergence == 0
    assert result.objective == result.negative_log_likelihood > 0


def test_labels_and_images_belong_together():
    """A client's examples are those at its positions: another client's do not matter."""
    trainer, (images, labels) = trainer_of("deterministic"), digits()
    received, examples = trainer.network.initial_posterior(0), np.arange(50, 90)
    expected = trainer.train(images, labels, make_task(received, examples)).posterior.digest()
    mine = np.isin(np.arange(len(labels)), examples)
    others = images.copy()
    others[~mine] = 255 - others[~mine]
    hidden = np.where(mine, labels, 9 - labels)
    result = trainer.train(others, hidden, make_task(received, examples))
    assert result.posterior.digest() == expected
    alone = make_task(received, np.arange(40))
    result = trainer.train(images[50:90], labels[50:90], alone)
    assert result.posterior.digest() == expected


# The optimiser


def replayed(trainer, received, optimizer_state, gradient, rate):
    """Return the trained values and the slots, by name, after one step on a given gradient."""
    from bfl.keras import tf

    trainer._begin(make_task(received, np.arange(32), optimizer_state=optimizer_state), received)
    gradients = [tf.fill(v.shape, gradient) for v in trainer.network.trainable_variables]
    trainer.meme.optimized.step(gradients, 0, tf.constant(rate))
    return trainer.meme.optimized.state(1)


@pytest.mark.parametrize("optimizer", optimizers.names())
def test_what_an_optimizer_keeps_goes_on(optimizer):
    """Two rounds with the state handed on are one round of twice the steps; without, they differ.

    At a rate of 0 nothing moves, so that the slots alone say what the optimizer has seen.
    """
    trainer = trainer_of("deterministic", optimizer=optimizer)
    received = trainer.network.initial_posterior(0)
    none = replayed(trainer, received, None, 1.0, 0.0)
    kept = replayed(trainer, received, none, 1.0, 0.0)
    again = replayed(trainer, received, None, 1.0, 0.0)
    size = sum(int(np.prod(v.shape)) for v in trainer.network.trainable_variables)
    assert set(kept) == {*optimizers.get(optimizer).slots, "steps"}
    assert (int(none["steps"]), int(kept["steps"])) == (1, 2)
    for name in optimizers.get(optimizer).slots:
        assert kept[name].shape == (size,)
        assert np.abs(kept[name] - none[name]).max() > 1e-4
        np.testing.assert_array_equal(again[name], none[name])


@pytest.mark.parametrize("optimizer", optimizers.names())
def test_state_that_is_kept_changes_the_next_round(optimizer):
    trainer = trainer_of("flipout", optimizer=optimizer)
    received, examples = trainer.network.initial_posterior(0), np.arange(64)
    first = trainer.train(*digits(), make_task(received, examples))

    def second(state):
        task = make_task(first.posterior, examples, labels=(2, 0), optimizer_state=state)
        return trainer.train(*digits(), task).posterior.digest()

    assert second(first.optimizer_state) != second({})
    assert second(first.optimizer_state) == second(first.optimizer_state)


def test_names_of_what_adam_keeps_are_those_of_older_checkpoints():
    trainer = trainer_of("deterministic")
    result = trainer.train(
        *digits(), make_task(trainer.network.initial_posterior(0), np.arange(64))
    )
    assert list(result.optimizer_state) == ["first-moment", "second-moment", "steps"]
    assert int(result.optimizer_state["steps"]) == 2


@pytest.mark.parametrize("inference", INFERENCES)
def test_untransformed_scales_are_known_from_values(inference):
    """Weight decay asks for it."""
    trainer = trainer_of(inference)
    scales = [p.untransformed_scale for p in trainer.network._parameters]
    expected = {id(variable) for variable in scales if variable is not None}
    assert {id(t.variable) for t in trainer.meme.optimized.trained if t.scale} == expected
    assert bool(expected) == trainer.network.inference.gaussian


@pytest.mark.parametrize("inference", INFERENCES)
def test_kernels_are_known_from_biases_and_normalization(inference):
    """Weight decay asks for it."""
    trainer = trainer_of(inference)
    kernels = {t.variable.shape.num_elements() for t in trainer.meme.optimized.trained if t.kernel}
    assert kernels == {p.size for p in trainer.network.manifest if len(p.shape) > 1}
    number = len([p for p in trainer.network.manifest if len(p.shape) > 1])
    assert sum(t.kernel for t in trainer.meme.optimized.trained) == number > 0


def test_descent_is_that_of_the_gradient_by_hand(received, monkeypatch):
    """One step of SGD from the received posterior: θ − η (g + λ θ)."""
    recorded = record_order(monkeypatch)
    settings = {"weight-decay": 0.5, "momentum": 0.9}
    trainer = trainer_of("flipout", optimizer="sgd", **settings)
    rate, prior = 0.02, 10.0
    result = trainer.train(*digits(), make_task(received, np.arange(32), (0.0, prior), rate=rate))
    order, weights = recorded[0]
    _, gradients = ByHand(received).batch(order[0], weights[0])
    manifest = trainer.network.manifest
    names = [p.name for p in manifest.gaussian]
    for name, before, after in zip(
        names,
        manifest.split(received.mean.astype(np.float64), gaussian=True),
        manifest.split(result.posterior.mean, gaussian=True),
        strict=True,
    ):
        gradient = gradients[name].numpy() + before / prior**2 / 32 + 0.5 * before
        assert_close((before - after) / rate, gradient)
    # Untransformed scales do not decay: here the divergence's gradient alone moves them.
    slope = -np.expm1(np.finfo(np.float32).eps - SIGMA)
    step = rate / 32 * (SIGMA / prior**2 - 1 / SIGMA) * slope
    rho = np.log(np.expm1(SIGMA))
    expected = np.logaddexp(0, rho - step) ** 2
    np.testing.assert_allclose(result.posterior.variance, expected, rtol=2e-2)


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


def test_rate_is_the_size_of_the_first_step():
    trainer = trainer_of("flipout")
    received = trainer.network.initial_posterior(0)
    for rate in (1e-3, 1e-2):
        result = trainer.train(*digits(), make_task(received, np.arange(32), rate=rate))
        moved = np.abs(result.posterior.mean - received.mean)
        assert np.median(moved) == pytest.approx(rate, rel=1e-2)
        assert moved.max() < 1.01 * rate


# What the result depends on


def digest_of(result):
    return result.posterior.digest(), result.objective


def result_of_a_client(inference="flipout", server_round=3, partition=5, seed=0):
    """Return the digest of a small task; a fresh process calls this too."""
    trainer = trainer_of(inference, "crop-flip")
    received = trainer.network.initial_posterior(1)
    examples = np.arange(partition * 9, partition * 9 + 70)
    labels = (server_round, partition)
    task = make_task(received, examples, epochs=2, labels=labels, seed=seed)
    return digest_of(trainer.train(*digits(), task))


@pytest.mark.parametrize("inference", INFERENCES)
def test_bits_do_not_depend_on_who_was_served_before(inference):
    first = result_of_a_client(inference)
    for server_round, partition, seed in ((3, 6, 0), (4, 5, 0), (1, 1, 7)):
        result_of_a_client(inference, server_round, partition, seed)
    for other in INFERENCES:
        result_of_a_client(other, 9, 9)
    assert result_of_a_client(inference) == first


@pytest.mark.parametrize("inference", INFERENCES)
def test_seed_round_and_partition_all_key_the_steps(inference, monkeypatch):
    """The order of the examples kept the same: crops, weights or masks still differ."""
    from bfl.learning.training import trainer as module

    order = module.batches(70, BATCH, 1, np.random.default_rng(0))
    monkeypatch.setattr(module, "batches", lambda *_: order)
    augmentation = "crop-flip" if inference == "deterministic" else "none"
    trainer = trainer_of(inference, augmentation)
    received, examples = trainer.network.initial_posterior(1), np.arange(70)

    def run(labels, seed):
        task = make_task(received, examples, labels=labels, seed=seed)
        return trainer.train(*digits(), task).posterior.digest()

    tasks = [((3, 5), 0), ((4, 5), 0), ((3, 6), 0), ((3, 5), 1)]
    results = [run(*task) for task in tasks]
    assert len(set(results)) == len(tasks)
    assert run(*tasks[0]) == results[0]


def test_seed_round_and_partition_all_key_the_order(monkeypatch):
    recorded = record_order(monkeypatch)
    trainer = trainer_of("deterministic")
    received, examples = trainer.network.initial_posterior(1), np.arange(70)
    for labels, seed in [((3, 5), 0), ((4, 5), 0), ((3, 6), 0), ((3, 5), 1), ((3, 5), 0)]:
        trainer.train(*digits(), make_task(received, examples, labels=labels, seed=seed))
    orders = [order.tobytes() for order, _ in recorded]
    assert len(set(orders)) == 4
    assert orders[0] == orders[4]


@pytest.mark.parametrize("inference", ["flipout", "mc-dropout", "reparameterization"])
def test_steps_of_a_task_draw_anew(inference):
    """Each step has weights or masks of its own: at a rate of 0 its losses still differ."""
    from bfl.keras import tf

    trainer = trainer_of(inference)
    images, labels = digits()
    received = trainer.network.initial_posterior(0)
    trainer._begin(make_task(received, np.arange(32), rate=0.0), received)
    order = tf.constant(np.tile(np.arange(32, dtype=np.int32), (6, 1)))
    measured = trainer._run(
        images, labels.astype(np.int32), order, tf.ones([6, 32]), tf.constant([1, 2]), 32.0, 0.0
    )
    assert len(np.unique(measured[:, 0])) == 6


def test_one_trace_serves_all_clients_sizes_and_rounds():
    from bfl.learning.training.trainer import LocalTrainer

    trainer = LocalTrainer(
        network_of("flipout"), BATCH, augmentations.create("none"), optimizers.create("adam")
    )
    initial = trainer.network.initial_posterior(0)
    prior = priors.create("previous-global").density(initial, {})
    for n in range(20):
        task = make_task(
            initial,
            np.arange(n, n + 1 + 7 * n),
            prior if n % 2 else (0.0, 1.0 + n),
            epochs=1 + n % 3,
            rate=1e-3 / (n + 1),
            labels=(n + 1, n),
            seed=n % 4,
        )
        trainer.train(*digits(), task)
    assert trainer.traces == 1


@pytest.mark.slow
def test_bits_are_those_of_a_fresh_process():
    expected = [result_of_a_client(inference) for inference in INFERENCES]
    root = Path(bfl.__file__).parents[1]
    script = (
        "import sys\n"
        f"sys.path.insert(0, {str(Path(inspect.getfile(result_of_a_client)).parent)!r})\n"
        "from bfl.keras import configure\n"
        "configure(1)\n"
        f"from {Path(__file__).stem} import INFERENCES, result_of_a_client\n"
        "print([result_of_a_client(inference) for inference in INFERENCES[::-1]])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.strip().splitlines()[-1] == str(expected[::-1])


# Learning


@pytest.mark.parametrize("inference", INFERENCES)
def test_digits_are_learned(inference):
    from bfl.evaluation.prediction.monte_carlo import Predictor
    from bfl.learning.networks.network import build_predictor

    dataset = load_dataset("digits")
    trainer = trainer_of(inference)
    received = trainer.network.initial_posterior(0)
    everything = np.arange(len(dataset.train_labels))
    first = trainer.train(*digits(), make_task(received, everything, rate=3e-3))
    second = trainer.train(
        *digits(), make_task(first.posterior, everything, epochs=3, rate=3e-3, labels=(2, 0))
    )
    assert second.negative_log_likelihood < first.negative_log_likelihood / 2
    assert second.objective < first.objective
    predicts = Predictor(
        trainer.network.manifest,
        build_predictor(trainer.network, create_architecture("resnet8")),
    )
    for images, labels in (
        (dataset.train_images, dataset.train_labels),
        (dataset.test_images, dataset.test_labels),
    ):
        predictions = predicts.predict(
            second.posterior, images, samples=5, seed=0, labels=("test",)
        )
        assert (predictions.predicted == labels).mean() > 0.8


def test_prior_pulls():
    trainer = trainer_of("flipout")
    received = trainer.network.initial_posterior(0)

    def train(prior, epochs=6):
        task = make_task(received, np.arange(64), prior, epochs=epochs)
        result = trainer.train(*digits(), task).posterior
        divergence = divergences.divergence(
            result.mean, result.variance, received.mean, received.variance
        ).value
        return result, divergence

    fixed, far = train(priors.create("fixed").density(received, {}))
    _, near = train(priors.create("previous-global").density(received, {}))
    assert near < far / 5
    # N(0, 100) wants larger variances, a narrow prior smaller ones.
    narrow, _ = train((0.0, 0.01))
    assert (fixed.variance > received.variance).mean() > 0.95
    assert (narrow.variance < received.variance).mean() > 0.95
    assert np.abs(narrow.mean).mean() < np.abs(received.mean).mean()
