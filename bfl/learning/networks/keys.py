"""Keys of TensorFlow's stateless random operations, and how one key gives many.

A key is an int32 tensor (2,). It is used once: either for one draw, or to make other keys, and the
others are its hash (Philox, both words in full), never its sum with a number. Sums of keys meet
again: draw 2 of a step and draw 1 of the next one would be the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from bfl.keras import tf

DRAWS_AT_ONCE = 128
"""Seeds that are made in one operation; a training step of Flipout ResNet-20 draws 80 times."""


def split(key: Any, count: Any) -> Any:
    """Return keys (count, 2) that are hashes of one, which is not to be used any more.

    Args:
        key: The key (2,).
        count: How many. More of them may begin with the same ones, and without XLA do, so another
            number does not make it another key.
    """
    return tf.random.split(key, count)


class _Keys:
    """The seeds of all draws under one key, in the order of the draws."""

    def __init__(self, key: Any) -> None:
        self._rest = key
        self._seeds: list[Any] = []

    def next(self) -> Any:
        if not self._seeds:
            *self._seeds, self._rest = tf.unstack(split(self._rest, DRAWS_AT_ONCE + 1))
        return self._seeds.pop(0)


_keys: ContextVar[_Keys | None] = ContextVar("keys", default=None)


@contextmanager
def keyed(key: Any) -> Iterator[None]:
    """Key the random draws of all layers called inside; a key is an int32 tensor (2,).

    Layers draw in the order in which they are called, which a network fixes when it is built.
    """
    token = _keys.set(_Keys(key))
    try:
        yield
    finally:
        _keys.reset(token)


def next_seed() -> Any:
    """Return the seed (2,) of the next draw under the innermost key.

    Outside of any key (Keras calls every layer once while a network is built, and throws the result
    away) the seed is constant.
    """
    keys = _keys.get()
    return tf.constant([0, 0], tf.int32) if keys is None else keys.next()
