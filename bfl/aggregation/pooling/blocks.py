"""Work on vectors, a block of parameters at a time, on one thread or several.

Pooling is bound by memory, so everything is done block by block: a block's sums stay in the
processor's cache while one client after the other is folded in, and are decoded while they are
still there. Blocks are independent of each other: the number of threads changes no bit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from bfl.aggregation.pooling.base import Array

BLOCK = 131072
"""Parameters taken at a time: few enough for a dozen float64 arrays to stay in cache, and enough
for NumPy's work on an array to take much longer than the call, which holds Python's lock and for
which threads wait.

A stochastic rule draws block by block, so this number is part of what its draws depend on.
"""

TASKS = 8
"""Tasks per thread: some slack for a thread that the machine holds up."""

T = TypeVar("T")


def over_blocks(size: int, threads: int, work: Callable[[slice], T]) -> list[T]:
    """Return what ``work`` gives for each block of so many parameters, in their order."""
    parts = [slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK)]
    if threads == 1 or len(parts) < 2:
        return [work(part) for part in parts]
    step = max(1, len(parts) // (TASKS * threads))
    tasks = [parts[first : first + step] for first in range(0, len(parts), step)]
    with ThreadPoolExecutor(min(threads, len(tasks))) as executor:
        done = executor.map(lambda task: [work(part) for part in task], tasks)
        return [result for results in done for result in results]


def generator_of_block(key: int, part: slice) -> np.random.Generator:
    """Return the generator of a client's draws for a block, the same on whichever thread."""
    # SFC64 because it is NumPy's fastest, and here it is what the time goes into.
    seed = np.random.SeedSequence(key, spawn_key=(part.start // BLOCK,))
    return np.random.Generator(np.random.SFC64(seed))


class Scratch(threading.local):
    """Float64 arrays of a block's length, which each thread has for itself and uses again.

    Fresh arrays of this size would cost more than the arithmetic: the system clears their memory.

    Args:
        statistics: The number of statistics per parameter.
        size: The number of parameters in all.
    """

    def __init__(self, statistics: int, size: int) -> None:
        self.rows = np.empty((7 + statistics, min(size, BLOCK)))

    def cut(self, part: slice) -> tuple[Array, Array, Array, Array]:
        """Return (2, B) for a client, (3, B) for what is known, (2, B) to spare, and the sums."""
        rows = self.rows[:, : part.stop - part.start]
        return rows[:2], rows[2:5], rows[5:7], rows[7:]
