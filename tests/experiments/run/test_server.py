"""What a student learns, with real networks and small images."""

import hashlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bfl.aggregation.ensemble import Member
from bfl.configuration import Configuration, resolve
from bfl.data.datasets import load_dataset
from bfl.data.datasets.subset import stratified_positions
from bfl.posteriors import Posterior

IMAGES = 60


class Setting:
    """A network, images and the server that has them."""

    def __init__(self, **values: Any) -> None:
        from bfl.data.datasets.server_data import ServerData
        from bfl.experiments.run.evaluator import Evaluator, NetworkServer

        given = {"model": "mlp", "strategy": "fedavg", **values}
        self.configuration: Configuration = resolve(given)
        dataset = load_dataset("digits")
        chosen = stratified_positions(dataset.train_labels, IMAGES, "server-examples", 0)
        labels = dataset.train_labels[chosen]
        data = ServerData(dataset.train_images[chosen], labels, chosen)
        self.evaluator = Evaluator(self.configuration, dataset)
        self.images, self.labels = data.images, labels
        self.server = NetworkServer(self.configuration, dataset, data, self.evaluator.predictor)
        self.start = self.evaluator.initial

    def probabilities(self, *models: Posterior) -> Any:
        members = [Member(f"model-{n}", m.mean, m.point) for n, m in enumerate(models)]
        predicted = self.server.predict_ensemble(members, labels=("test",))
        return predicted.mean_probability.astype(np.float32)

    def task(self, targets: Any, **changes: Any) -> Any:
        from bfl.aggregation.refinements.distillation import Distillation
        from bfl.aggregation.server import DistillationTask

        settings = {
            "distillation_batch_size": 16,
            "distillation_epochs": 5,
            "swa_cycle": 5,
            "distillation_learning_rate": 0.05,
            "swa_lowest_rate": 0.02,
        }
        plan = Distillation(**{**settings, **changes}).plan(IMAGES, 10)
        return DistillationTask(self.start, targets, plan, seed=3, labels=("distillation", 1))

    def gradient(self, targets: Any) -> float:
        """Return the greatest component of the first gradient, all images in the batch."""
        import bfl.keras

        task = self.task(targets)
        distiller = self.server.distiller(task)
        distiller.network.load(self.start)
        found = distiller.gradients(
            bfl.keras.tf.constant(self.images),
            bfl.keras.tf.constant(targets),
            bfl.keras.tf.ones(IMAGES),
            bfl.keras.tf.constant([1, 2]),
            1.0,
        )
        return max(float(np.abs(part.numpy()).max()) for part in found)


@pytest.fixture(scope="module")
def points(tensorflow: Any) -> Setting:
    return Setting(inference="deterministic")


def other(start: Posterior, seed: int = 1) -> Posterior:
    noise = np.random.default_rng(seed).normal(size=start.point.size).astype(np.float32)
    return replace(start, point=start.point + 0.3 * noise)


def test_a_student_that_is_its_own_target_has_no_gradient_and_stays(points: Setting) -> None:
    """The paper's remark in C.3; sharpening and augmentation give it one."""
    from bfl.aggregation.refinements.distillation import sharpen

    target = points.probabilities(points.start)
    assert points.gradient(target) < 1e-6
    student = points.server.distil(points.task(target, distillation_optimizer="sgd")).posterior
    np.testing.assert_allclose(student.point, points.start.point, atol=1e-5)
    assert points.gradient(sharpen(target).astype(np.float32)) > 1e-3
    augmented = Setting(inference="deterministic", **{"student-augmentation": "crop-flip"})
    assert augmented.gradient(target) > 1e-3


def test_distillation_lowers_the_cross_entropy_to_the_ensemble(points: Setting) -> None:
    target = points.probabilities(other(points.start, 1), other(points.start, 2))
    for optimizer in ("swa", "sgd"):
        done = points.server.distil(points.task(target, distillation_optimizer=optimizer))
        log_of_student = np.log(points.probabilities(done.posterior))
        expected = -(target * log_of_student).sum(axis=1).mean()
        assert done.after == pytest.approx(expected, rel=1e-4)
        entropy = -(target * np.log(target)).sum(axis=1).mean()
        assert entropy < done.after < done.before - 0.5 * (done.before - entropy)


def test_the_average_is_the_mean_of_the_collected_models(points: Setting) -> None:
    """Each made again by a plan that ends where it was collected."""
    target = points.probabilities(other(points.start))
    task = points.task(target)
    ends = np.flatnonzero(task.plan.collected) + 1
    assert ends.tolist() == [5, 10, 15, 20]
    collected = []
    for end in ends:
        plan = replace(task.plan, rates=task.plan.rates[:end], collected=np.zeros(end, bool))
        collected.append(points.server.distil(replace(task, plan=plan)).posterior.point)
    done = points.server.distil(task)
    assert done.collected == len(collected)
    mean = np.mean(np.stack(collected), axis=0, dtype=np.float64).astype(np.float32)
    np.testing.assert_array_equal(done.posterior.point, mean)
    assert np.abs(collected[0] - collected[-1]).max() > 1e-3


def test_the_same_task_gives_the_same_bits_and_nothing_is_traced_again(points: Setting) -> None:
    target = points.probabilities(*(other(points.start, seed) for seed in range(21)))
    task = points.task(target)
    first = points.server.distil(task).posterior
    points.server.distil(replace(task, labels=("distillation", 2)))
    assert points.server.distil(task).posterior.digest() == first.digest()
    assert points.server.distiller(task).traces == 1
    assert points.evaluator.predictor.traces == 1


def bits_of_a_server_step() -> str:
    """Return the digests of what teachers predict and of the student."""
    given = {"model": "resnet8", "student-augmentation": "crop-flip"}
    setting = Setting(inference="deterministic", **given)
    teachers = [other(setting.start, seed) for seed in range(3)]
    members = [Member(f"model-{n}", m.mean, m.point) for n, m in enumerate(teachers)]
    predicted = setting.server.predict_ensemble(members, labels=("test",))
    task = setting.task(setting.probabilities(*teachers))
    digest = hashlib.sha256(predicted.mean_probability.tobytes()).hexdigest()
    return f"{digest} {setting.server.distil(task).posterior.digest()}"


@pytest.mark.slow
def test_no_bit_depends_on_how_many_operations_are_computed_at_once(tensorflow: Any) -> None:
    """One in this process and four in another, each with one thread."""
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from bfl.keras import configure, operations_at_once\n"
        "configure(1, 4)\n"
        f"from {Path(__file__).stem} import bits_of_a_server_step\n"
        "print(operations_at_once(), bits_of_a_server_step(), sep='\\n')\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.split("\n")[-3:] == ["4", bits_of_a_server_step(), ""]


def test_the_codes_loss_makes_a_gradient_a_tenth(points: Setting) -> None:
    target = points.probabilities(other(points.start))
    changes = {"distillation_loss": "image-and-class", "distillation_learning_rate": 0.5}
    tenth = points.task(target, distillation_optimizer="sgd", **changes)
    whole = points.task(target, distillation_optimizer="sgd")
    found, expected = (points.server.distil(task).posterior.point for task in (tenth, whole))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert np.abs(found - points.start.point).max() > 1e-3


def test_variational_students_keep_the_variances_of_the_pool(tensorflow: Any) -> None:
    setting = Setting(inference="flipout")
    mean = setting.start.mean + np.float32(0.2) * np.cos(np.arange(setting.start.size))
    target = setting.probabilities(replace(setting.start, mean=mean.astype(np.float32)))
    done = setting.server.distil(setting.task(target))
    assert done.posterior.variance.tobytes() == setting.start.variance.tobytes()
    assert done.after < done.before
    assert np.abs(done.posterior.mean - setting.start.mean).max() > 1e-3


def test_at_the_mean_of_dropout_no_mask_is_drawn(tensorflow: Any) -> None:
    """What weights by accuracy judge clients by; members of ensembles have one mask each."""
    dropped = Setting(inference="mc-dropout", **{"dropout-rate": 0.5})
    plain = Setting(inference="deterministic").server.logits_at_mean(dropped.start)
    np.testing.assert_array_equal(dropped.server.logits_at_mean(dropped.start), plain)
    member = Member("model", dropped.start.mean, dropped.start.point)
    [(_, masked)] = dropped.server.member_logits([member], labels=("test",))
    assert np.abs(masked - plain).max() > 0.1


def test_moving_statistics_are_those_of_the_images(tensorflow: Any) -> None:
    """Of the first normalisation they are known: those of the convolution before it."""
    from bfl.keras import keras, tf
    from bfl.learning.distillation import StatisticsPass
    from bfl.learning.networks.network import build_network, normalized_images

    setting = Setting(model="resnet8", inference="deterministic")
    network = build_network(
        setting.configuration.architecture, setting.configuration.inference, (8, 8, 1), 10
    )
    network.load(setting.start)
    passes = StatisticsPass(network, batch_size=40)
    passes.recompute(setting.images, 0, ("test",))
    once = network.posterior().digest()
    passes.recompute(setting.images, 0, ("test",))
    assert network.posterior().digest() == once
    assert passes.traces == 1
    first = next(
        layer
        for layer in network.model.layers
        if isinstance(layer, keras.layers.BatchNormalization)
    )
    before = keras.Model(network.model.input, first.input)(
        normalized_images(tf.constant(setting.images))
    ).numpy()
    batches = [before[:40].reshape(-1, before.shape[-1]), before[40:].reshape(-1, before.shape[-1])]
    share = np.array([40, 20]) / 60
    means = sum(s * b.mean(axis=0) for s, b in zip(share, batches, strict=True))
    variances = sum(s * b.var(axis=0, ddof=1) for s, b in zip(share, batches, strict=True))
    np.testing.assert_allclose(first.moving_mean.numpy(), means, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(first.moving_variance.numpy(), variances, rtol=1e-3)


def test_the_moving_statistics_of_an_average_are_made_anew_from_the_servers_images(
    tensorflow: Any,
) -> None:
    from bfl.learning.distillation import StatisticsPass
    from bfl.learning.networks.network import build_network

    setting = Setting(model="resnet8", inference="deterministic")
    configuration = setting.configuration
    target = setting.probabilities(other(setting.start))
    task = setting.task(target)
    done = setting.server.distil(task)
    network = build_network(configuration.architecture, configuration.inference, (8, 8, 1), 10)
    network.load(done.posterior)
    StatisticsPass(network, task.plan.batch_size).recompute(setting.images, task.seed, task.labels)
    np.testing.assert_allclose(network.posterior().point, done.posterior.point, rtol=1e-4)
    # What is reported of the student is what it predicts with them.
    log_of_student = np.log(setting.probabilities(done.posterior))
    after = -(target * log_of_student).sum(axis=1).mean()
    assert done.after == pytest.approx(after, rel=1e-3)
