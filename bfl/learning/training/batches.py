"""In which order training visits a client's examples."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def batches(
    count: int, batch_size: int, epochs: int, generator: np.random.Generator
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Return the order in which an epoch, or several, visit a client's examples.

    Every epoch is a permutation. All batches have one size, so that the training step is traced
    once: the last batch is filled up with the epoch's first examples at weight 0, which take part
    in batch normalisation's statistics but not in the loss.

    Args:
        count: The client's number of examples N.
        batch_size: B.
        epochs: E.
        generator: Where the permutations come from.

    Returns:
        Positions (E·⌈N/B⌉, B) into the client's examples, and their weights (E·⌈N/B⌉, B), 1 or 0.
    """
    orders = [generator.permutation(count) for _ in range(epochs)]
    filled = [_filled(order, batch_size) for order in orders]
    return np.concatenate([o for o, _ in filled]), np.concatenate([w for _, w in filled])


def batches_in_order(
    count: int, batch_size: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Return one visit of all examples in their own order, filled up as ``batches`` does it."""
    return _filled(np.arange(count), batch_size)


def _filled(
    order: npt.NDArray[np.integer], batch_size: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Return an order as batches, and its weights."""
    steps = -(-order.size // batch_size)
    weights = np.zeros(steps * batch_size, np.float32)
    weights[: order.size] = 1.0
    positions = np.resize(order, steps * batch_size).astype(np.int32)
    return positions.reshape(steps, batch_size), weights.reshape(steps, batch_size)
