"""No random number is drawn twice: by seeds, and by the numbers themselves.

A recorder stands in for TensorFlow's stateless operations. It notes the seed of every draw and what
has been drawn, also inside a training loop's graph.
"""

import itertools

import numpy as np
import pytest
from one_layer import task_of
from small_network import SmallNetwork

from bfl.data.datasets import load_dataset
from bfl.learning.augmentations import augmentations
from bfl.learning.inferences import inferences
from bfl.learning.optimizers import optimizers

pytestmark = pytest.mark.usefixtures("tensorflow")

STOCHASTIC = ("flipout", "ivon", "mc-dropout", "reparameterization")
DRAWS = {"flipout": 4, "ivon": 2, "mc-dropout": 1, "reparameterization": 1}
"""Random draws of a layer in a training step."""
LAYERS = 3
"""Of the small network: two convolutions, and the dense layer that gives the logits."""


class Recorder:
    """Notes seeds and numbers; ``seeds`` in no order, ``numbers`` by the shape of the draw."""

    def __init__(self):
        self.seeds = []
        self.numbers = {}

    def watch(self, monkeypatch):
        from bfl.keras import tf, tfp

        for module, names in (
            (tf.random, [name for name in dir(tf.random) if name.startswith("stateless_")]),
            (tfp.random, ["rademacher"]),
        ):
            for name in names:
                monkeypatch.setattr(module, name, self._recorded(tf, getattr(module, name)))
        return self

    def _recorded(self, tf, draw):
        def drawing(shape, seed=None, **more):
            result = draw(shape, seed=seed, **more)
            if seed is not None and type(result) is not tuple:
                tf.numpy_function(self._note, [seed, tf.cast(result, tf.float32)], [])
            return result

        return drawing

    def _note(self, seed, numbers):
        self.seeds.append(tuple(int(word) for word in seed))
        if len(self.seeds) < 2000:
            self.numbers.setdefault(numbers.shape, []).append(numbers.ravel())

    def assert_new_seeds(self, draws):
        assert len(self.seeds) == draws
        assert len(set(self.seeds)) == draws

    def assert_uncorrelated(self, least=200):
        """Check that no two draws of a shape go together, as the same numbers would.

        For independent draws of n numbers the correlation is about N(0, 1/n): of fewer than 10^6
        pairs none is 6.5 standard errors away, but once in 10,000 seeds.
        """
        compared = 0
        for shape, drawn in self.numbers.items():
            size = int(np.prod(shape))
            if size < least or len(drawn) < 2:
                continue
            together = np.corrcoef(np.stack(drawn)) - np.eye(len(drawn))
            assert np.abs(together).max() < 6.5 / np.sqrt(size), shape
            compared += 1
        assert compared


@pytest.fixture
def recorder(monkeypatch):
    return Recorder().watch(monkeypatch)


def new_trainer(inference):
    """Return a trainer with a network of its own, which no other test has traced."""
    from bfl.learning.networks.network import Network
    from bfl.learning.training.trainer import LocalTrainer

    network = Network(SmallNetwork(), inferences.create(inference), (8, 8, 1), 10)
    optimizer = optimizers.create("ivon" if inference == "ivon" else "adam")
    return LocalTrainer(network, 2, augmentations.create("crop-flip"), optimizer)


def train(trainer, steps, server_round, partition):
    task = task_of(
        trainer.network.initial_posterior(0),
        examples=np.arange(2 * steps),
        epochs=1,
        learning_rate=1e-4,
        key_labels=(server_round, partition),
    )
    dataset = load_dataset("digits")
    trainer.train(dataset.train_images, dataset.train_labels, task)


@pytest.mark.slow
@pytest.mark.parametrize("inference", STOCHASTIC)
def test_draws_of_steps_clients_and_rounds_are_all_different(inference, recorder):
    trainer, steps = new_trainer(inference), 6
    tasks = list(itertools.product((1, 2, 3), (0, 1, 2)))
    for server_round, partition in tasks:
        train(trainer, steps, server_round, partition)
    augmentation = 2
    recorder.assert_new_seeds(steps * len(tasks) * (DRAWS[inference] * LAYERS + augmentation))
    recorder.assert_uncorrelated()


def test_a_key_gives_keys_that_sums_do_not_reach(tensorflow):
    """Neighbouring keys and neighbouring places in a split have nothing in common."""
    from bfl.learning.networks.layers import DRAWS_AT_ONCE, keyed, next_seed, split

    seeds = []
    for words in itertools.product(range(5), range(20)):
        with keyed(tensorflow.constant(words)):
            seeds += [tuple(next_seed().numpy()) for _ in range(DRAWS_AT_ONCE + 40)]
    assert len(set(seeds)) == len(seeds)
    words = np.array(seeds, np.int64)
    # Uniform over all 32 bits of both words.
    assert np.abs(words.mean(axis=0)).max() < 6 * 2**32 / np.sqrt(12 * len(seeds))
    bits = (words[:, :, None] >> np.arange(32)) & 1
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 6 * 0.5 / np.sqrt(len(seeds))
    keys = split(tensorflow.constant([1, 2]), 5).numpy()
    assert keys.shape == (5, 2)
    np.testing.assert_array_equal(split(tensorflow.constant([1, 2]), 5), keys)
    np.testing.assert_array_equal(split(tensorflow.constant([1, 2]), 9)[:5], keys)
