"""A part of a data set: its size, its mixture of classes, and that it is always the same."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bfl.data.datasets import Dataset
from bfl.data.datasets.subset import stratified_positions, train_positions, with_test_examples
from bfl.errors import ConfigurationError


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(any),
    share=st.floats(0.01, 0.99),
    seed=st.integers(0, 5),
)
def test_every_class_has_its_share(sizes: list[int], share: float, seed: int) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    labels = np.random.default_rng(seed).permutation(labels).astype(np.int64)
    kept = stratified_positions(labels, share, "train-examples")
    assert kept.size == max(1, round(share * labels.size)) == np.unique(kept).size
    assert (np.diff(kept) > 0).all()
    counts = np.bincount(labels[kept], minlength=len(sizes))
    # Webster's apportionment: there is a t of which every count is the rounded t · size.
    present = [(int(count), size) for count, size in zip(counts, sizes, strict=True) if size]
    least = max((count - 0.5) / size for count, size in present)
    most = min((count + 0.5) / size for count, size in present)
    assert least <= most + 1e-12


def test_a_smaller_part_lies_in_a_larger_one_by_chance() -> None:
    labels = np.random.default_rng(0).integers(0, 10, 500)
    amounts = (1, 7, 0.1, 0.5, 499, 0)
    parts = [stratified_positions(labels, amount, "x") for amount in amounts]
    assert [part.size for part in parts] == [1, 7, 50, 250, 499, 500]
    for smaller, larger in pairwise(parts):
        assert {*smaller} < {*larger}
    kept = stratified_positions(np.zeros(1000, np.int64), 0.5, "x")
    assert 200 < (kept < 500).sum() < 300
    other = stratified_positions(np.zeros(1000, np.int64), 0.5, "y")
    assert not np.array_equal(kept, other)


@pytest.mark.parametrize("amount", [2.5, 51.0])
def test_what_is_not_there_is_refused(amount: float) -> None:
    with pytest.raises(ConfigurationError, match=r"test-examples is .* up to 50"):
        stratified_positions(np.zeros(50, np.int64), amount, "test-examples")


def test_a_data_set_keeps_its_training_part() -> None:
    images = np.arange(40, dtype=np.uint8).reshape(40, 1, 1, 1)
    labels = np.arange(40) % 4
    dataset = Dataset("d", images, labels, images, labels, tuple("abcd"))
    fewer = with_test_examples(dataset, 0.5)
    assert with_test_examples(dataset, 0.0) is dataset
    np.testing.assert_array_equal(fewer.train_images, images)
    assert np.bincount(fewer.test_labels).tolist() == [5, 5, 5, 5]
    np.testing.assert_array_equal(fewer.test_images.ravel() % 4, fewer.test_labels)
    np.testing.assert_array_equal(np.bincount(labels[train_positions(dataset, 8.0)]), [2, 2, 2, 2])
