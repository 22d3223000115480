"""In which order epochs visit a client's examples."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bfl.learning.training.learner import batches, filled_batches


@settings(max_examples=150, deadline=None)
@given(
    count=st.integers(1, 200),
    batch_size=st.integers(2, 64),
    epochs=st.integers(1, 4),
    seed=st.integers(0, 2**32),
)
def test_each_epoch_visits_each_example_once(count, batch_size, epochs, seed):
    order, weights = batches(count, batch_size, epochs, np.random.default_rng(seed))
    steps = int(np.ceil(count / batch_size))
    assert order.shape == weights.shape == (epochs * steps, batch_size)
    assert order.dtype == np.int32
    assert weights.dtype == np.float32
    assert np.isin(weights, (0, 1)).all()
    assert ((order >= 0) & (order < count)).all()
    # No batch without an example: the mean over its weights exists.
    assert (weights.sum(axis=1) >= 1).all()
    # Only the last batch of an epoch is filled up.
    assert (weights.reshape(epochs, -1) == (np.arange(steps * batch_size) < count)).all()
    for epoch in range(epochs):
        part = slice(epoch * steps, (epoch + 1) * steps)
        visited = order[part][weights[part] == 1]
        np.testing.assert_array_equal(np.sort(visited), np.arange(count))
        filled = order[part][weights[part] == 0]
        if filled.size <= count:
            np.testing.assert_array_equal(filled, visited[: filled.size])
    again, same = batches(count, batch_size, epochs, np.random.default_rng(seed))
    np.testing.assert_array_equal(order, again)
    np.testing.assert_array_equal(weights, same)


def test_epochs_and_generators_have_orders_of_their_own():
    orders = [
        row.tolist()
        for seed in range(3)
        for row in batches(40, 40, 3, np.random.default_rng(seed))[0]
    ]
    assert len({tuple(row) for row in orders}) == 9
    first = [batches(5, 5, 1, np.random.default_rng(seed))[0][0, 0] for seed in range(500)]
    assert np.bincount(first).min() > 60


def test_a_visit_in_order_is_an_epoch_in_order():
    order, weights = filled_batches(np.arange(5), 3)
    assert order.tolist() == [[0, 1, 2], [3, 4, 0]]
    assert weights.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert (order.dtype, weights.dtype) == (np.int32, np.float32)
