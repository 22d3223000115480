"""Private training against what can be worked out: sums, their sensitivity, noise, and no noise."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from one_layer import BATCH, IMAGES, LABELS, posterior_of, task_of, train, trainer_of

from bfl.errors import ConfigurationError
from bfl.federation.privacy import SystemNormals
from bfl.learning.example_privacy import DifferentiallyPrivateSgd, ExamplePrivacy, PrivateGradients
from bfl.learning.inferences import inferences
from bfl.learning.objectives import objectives

pytestmark = pytest.mark.usefixtures("tensorflow")

WIDE = 1e6
"""A bound that no gradient here comes near."""

BOUND = 0.01
"""A bound that all of them reach."""


def part(**values: float) -> PrivateGradients:
    named = {f"example_{key}": value for key, value in values.items()}
    return DifferentiallyPrivateSgd(**{"example_noise_multiplier": 0.0, **named})


def private_trainer(inference: str, privacy: PrivateGradients, **parts: Any) -> Any:
    return trainer_of(inference, normalized=False, example_privacy=privacy, **parts)


@cache
def begun(inference: str) -> Any:
    """Return what sums the bounded gradients of some of the examples, with a trainer of them."""
    from bfl.keras import tf

    trainer = private_trainer(inference, part(clip_norm=BOUND))
    task = task_of(posterior_of(trainer.network, 1))
    trainer.learner.begin(task.received, task.received, task.prior, {})
    summed = tf.function(
        trainer.private_steps._sum_gradients, autograph=False, reduce_retracing=True
    )

    def sum_of(which: np.ndarray, keys: Any) -> np.ndarray:
        total, _ = summed(
            tf.constant(IMAGES[which]),
            tf.constant(LABELS[which], tf.int32),
            tf.gather(keys, which),
            tf.constant(40.0),
        )
        return np.asarray(total.numpy())

    return trainer, sum_of


def keys_of(number: int) -> Any:
    from bfl.learning.networks.layers import split

    return split(np.array([3, number], np.int32), 40)


@pytest.mark.parametrize("inference", inferences.names())
def test_the_sum_is_that_of_the_gradients_of_batches_of_one(inference: str) -> None:
    """Of the gradients of ordinary steps that see one example, each brought to the bound."""
    from bfl.keras import tf
    from bfl.learning.networks.layers import split
    from bfl.learning.networks.network import normalized_images
    from bfl.learning.training.learner import Batch

    trainer, sum_of = begun(inference)
    keys, which = keys_of(1), np.array([4, 7, 30])
    singly = []
    for index in which:
        _, key = tf.unstack(split(keys[index], 2))
        one = Batch(
            normalized_images(IMAGES[[index]]),
            tf.constant(LABELS[[index]], tf.int32),
            tf.ones([1]),
            tf.constant(40.0),
        )
        gradients, _ = trainer.learner.gradients(trainer.learner.forward(one.images, key), one)
        rest, _ = trainer.learner.shared_gradients(one.count)
        of_data = zip(gradients, rest, strict=True)
        whole = np.concatenate([(a - b).numpy().ravel() for a, b in of_data])
        assert np.linalg.norm(whole) > 10 * BOUND
        singly.append(whole * BOUND / np.linalg.norm(whole))
    np.testing.assert_allclose(sum_of(which, keys), np.sum(singly, axis=0), rtol=1e-3, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("inference", inferences.names())
def test_one_example_changes_the_sum_by_at_most_the_bound(inference: str) -> None:
    """Whichever it is, and by all of it where all are longer; the others' gradients stay."""
    _, sum_of = begun(inference)
    keys, everybody = keys_of(2), np.arange(6)
    whole = sum_of(everybody, keys)
    lengths = [
        np.linalg.norm(whole - sum_of(np.delete(everybody, index), keys)) for index in everybody
    ]
    assert max(lengths) <= BOUND
    assert min(lengths) == pytest.approx(BOUND, rel=1e-6)
    np.testing.assert_allclose(sum_of(everybody[::-1], keys), whole, atol=1e-12)
    assert not sum_of(everybody[:0], keys).any()


def test_with_all_examples_and_a_wide_bound_it_is_training_on_one_batch() -> None:
    examples = np.arange(BATCH)
    plain = trainer_of("deterministic", normalized=False)
    private = private_trainer("deterministic", part(clip_norm=WIDE, sampling_rate=1.0))
    task = task_of(posterior_of(plain.network, 1), examples=examples, epochs=5)
    one, other = train(plain, task), train(private, task)
    assert np.linalg.norm(one.posterior.point - task.received.point) > 0.03
    np.testing.assert_allclose(other.posterior.point, one.posterior.point, rtol=1e-4, atol=1e-5)
    assert other.steps == one.steps == 5
    assert other.objective == pytest.approx(one.objective, rel=1e-4)


def test_what_looks_at_no_data_is_neither_bounded_nor_noised_nor_counted_twice() -> None:
    """The proximal term alone: a geometric path, by means µ (m − m₀) / (N σ₀²) a step."""
    mu, rate = 0.8, 0.05
    terms = (objectives.create("proximal", {"proximal-mu": mu}),)
    trainer = private_trainer("flipout", part(clip_norm=1e-9, sampling_rate=0.5), objective=terms)
    received, start = (posterior_of(trainer.network, seed) for seed in (1, 2))
    result = train(trainer, task_of(received, start=start, learning_rate=rate))
    assert result.steps == 4
    left = (1 - rate * mu / (40 * received.variance.astype(np.float64))) ** 4
    np.testing.assert_allclose(
        result.posterior.mean, received.mean + left * (start.mean - received.mean), rtol=1e-5
    )


class Chosen:
    """Draws that are told: these examples, and this noise."""

    def __init__(self, taken: list[int], noise: float) -> None:
        self.taken = taken
        self.one = noise

    def random(self, size: int) -> np.ndarray:
        uniform = np.ones(size) * 0.999
        uniform[self.taken] = 0.0
        return uniform

    def standard_normal(self, size: int) -> np.ndarray:
        return self.one * np.linspace(-1.0, 1.0, size)


@pytest.mark.parametrize("taken", [[], [1, 5, 9]])
def test_a_step_has_the_noise_over_the_expected_size_of_a_batch(taken: list[int]) -> None:
    """Whatever the batch's own size: η z C ξ / (q N), of the means, points and scales alike."""
    privacy = part(clip_norm=0.5, noise_multiplier=3.0, sampling_rate=0.25)
    trainer = private_trainer("deterministic", privacy)
    received = posterior_of(trainer.network, 1)
    ends = [
        train(trainer, task_of(received, epochs=1, draws=Chosen(taken, noise))).posterior.point
        for noise in (0.0, 1.0)
    ]
    expected = -0.05 * 4 * 3.0 * 0.5 * np.linspace(-1.0, 1.0, received.point.size) / (0.25 * 40)
    if taken:  # later gradients are taken elsewhere
        assert np.corrcoef(ends[1] - ends[0], expected)[0, 1] > 0.9
    else:
        np.testing.assert_allclose(ends[0], received.point)
        np.testing.assert_allclose(ends[1] - ends[0], expected, rtol=1e-4, atol=1e-6)


def test_noise_reaches_every_trained_parameter() -> None:
    """With Flipout means and standard deviations; batches of nobody say nothing else."""
    trainer = private_trainer("flipout", part(noise_multiplier=1.0))
    received = posterior_of(trainer.network, 1)
    ends = [
        train(trainer, task_of(received, draws=Chosen([], noise))).posterior for noise in (0.0, 1.0)
    ]
    for name in ("mean", "variance"):
        assert np.mean(getattr(ends[0], name) != getattr(ends[1], name)) > 0.9


def test_what_bounds_no_gradients_is_no_protection() -> None:
    class Nothing(ExamplePrivacy):
        """It says that it is active, and has nothing to bound gradients by."""

        @property
        def active(self) -> bool:
            return True

    with pytest.raises(ConfigurationError, match="bounds no gradients"):
        trainer_of("deterministic", normalized=False, example_privacy=Nothing())


def test_neither_bound_nor_noise_leaves_the_bits() -> None:
    plain, off = trainer_of("flipout"), part(clip_norm=0.0)
    trainer = trainer_of("flipout", example_privacy=off)
    assert trainer.private_steps is None
    task = task_of(posterior_of(plain.network, 1))
    assert train(trainer, task).posterior.digest() == train(plain, task).posterior.digest()


def test_the_seed_repeats_a_simulation_and_nothing_a_deployment() -> None:
    trainer = private_trainer("flipout", part(noise_multiplier=1.0))
    received = posterior_of(trainer.network, 1)
    digests = [
        train(trainer, task_of(received, **changes)).posterior.digest()
        for changes in (
            {},
            {},
            {"seed": 1},
            {"key_labels": (2, 0)},
            {"draws": SystemNormals()},
            {"draws": SystemNormals()},
        )
    ]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 5
    # Whatever the sizes of the batches, and in whichever order clients come.
    assert trainer.private_steps.traces == 1
