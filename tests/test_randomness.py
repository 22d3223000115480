import numpy as np

from bfl import randomness


def test_the_same_labels_give_the_same_numbers() -> None:
    first = randomness.generator(7, "train", 3, 2).standard_normal(5)
    randomness.generator(7, "train", 3, 1).standard_normal(100)
    assert np.array_equal(first, randomness.generator(7, "train", 3, 2).standard_normal(5))


def test_every_label_matters() -> None:
    labels = [(0, "a", 1), (1, "a", 1), (0, "b", 1), (0, "a", 2), (0, "a", 1, 0), (0, 1, "a")]
    keys = {tuple(randomness.key(seed, *rest)) for seed, *rest in labels}
    assert len(keys) == len(labels)


def test_a_key_is_two_int32() -> None:
    key = randomness.key(2**62, "steps", 10_000, 999)
    assert key.shape == (2,)
    assert key.dtype == np.int32
