"""Several closings in as few rounds of sums as they take, as pure functions of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest

import numpy as np

from bfl.closing.base import (
    FEATURE_BOUND,
    ROUNDED,
    Array,
    Closing,
    Examples,
    Known,
    Measurement,
    Sizes,
    Sums,
)
from bfl.cpus import one_thread

ROUNDS_MADE = "closing-rounds-made"
"""The array, and the metric, with the number of rounds of sums made."""

ROUNDING = 1e-9
"""By how much more than its bound an example may add, by rounding in float64."""

Chain = Sequence[Closing]


def schedule(chain: Chain) -> list[tuple[Measurement, ...]]:
    """Return what clients measure in each round of sums, one round after the other."""
    at_once = [each.measurements() for each in chain if not each.waits]
    rounds = [tuple(each for each in row if each) for row in zip_longest(*at_once)]
    waiting = [each.measurements() for each in chain if each.waits]
    return rounds + [(each,) for measurements in waiting for each in measurements]


def next_measurements(chain: Chain, known: Known) -> tuple[Measurement, ...]:
    """Return what clients measure in the next round; nothing when all rounds have been made."""
    made = int(known.get(ROUNDS_MADE, 0))
    return next(iter(schedule(chain)[made : made + 1]), ())


def broadcast(chain: Chain, known: Known) -> Known:
    """Return the arrays that clients need in the next round."""
    names = {name for each in next_measurements(chain, known) for name in each.told}
    return {
        name: np.asarray(value)
        for name, value in known.items()
        if name == ROUNDS_MADE or name.partition(".")[0] in names
    }


def length(measurements: Sequence[Measurement], sizes: Sizes) -> int:
    """Return the length of a vector of sums."""
    shapes = [shape for each in measurements for shape in each.shapes(sizes).values()]
    return sum(int(np.prod(shape)) for shape in shapes)


def measure(
    measurements: Sequence[Measurement],
    known: Known,
    sizes: Sizes,
    examples: Callable[[bool], Examples | None],
) -> Array:
    """Return a client's sums as one vector, in the order of ``shapes``.

    Linear algebra has one thread, so that no bit depends on how many there are.

    Args:
        measurements: What is measured in this round.
        known: What the client is told.
        sizes: Those of the last layer.
        examples: Gives what the client has held back, if it is passed True, or has trained on; None
            for no examples.
    """
    rows: list[Array] = [np.zeros(0)]
    with one_thread():
        for each in measurements:
            seen = examples(each.on_held_back)
            sums = each.measure(known, seen) if seen else {}
            shapes = each.shapes(sizes)
            rows += [np.ravel(sums.get(name, np.zeros(shape))) for name, shape in shapes.items()]
    return np.concatenate(rows)


def fold(chain: Chain, known: Known, total: Array, sizes: Sizes) -> Known:
    """Return what is known after a round.

    Args:
        chain: The closings.
        known: What was known before.
        total: All clients' vectors, added up.
        sizes: Those of the last layer.
    """
    measurements = next_measurements(chain, known)
    after = {**known, ROUNDS_MADE: np.array(int(known.get(ROUNDS_MADE, 0)) + 1)}
    with one_thread():
        for each, sums in _split(measurements, total, sizes):
            after = {**each.fold(after, sums)}
    return after


def find_problem(
    vector: Array,
    examples: int,
    measurements: Sequence[Measurement],
    sizes: Sizes,
    *,
    noised: bool = False,
) -> str | None:
    """Return why so many examples cannot have such sums; None if they may.

    Args:
        vector: What one client has sent, or several together.
        examples: How many examples they are said to be of.
        measurements: What was measured in the round.
        sizes: Those of the last layer.
        noised: Whether they have privacy's noise.
    """
    vector, most = np.asarray(vector, np.float64), greatest(examples)
    if beyond := int(np.count_nonzero(~(np.abs(vector) <= most * (1.0 + ROUNDED)))):
        return f"{beyond} of {vector.size} sums are beyond ±{most:g}"
    for each, sums in _split(measurements, vector, sizes):
        if problem := each.find_problem(sums, examples, noised=noised):
            name = type(each).__name__
            return f"sums ({name}) that {examples} examples cannot have: {problem}"
    return None


def _split(
    measurements: Sequence[Measurement], vector: Array, sizes: Sizes
) -> Iterator[tuple[Measurement, Sums]]:
    """Yield the measurements of a round, each with its sums in a vector of all."""
    start = 0
    for each in measurements:
        sums = {}
        for name, shape in each.shapes(sizes).items():
            size = int(np.prod(shape))
            sums[name] = vector[start : start + size].reshape(shape)
            start += size
        yield each, sums


def deviations(
    measurements: Sequence[Measurement], longest: float, sizes: Sizes
) -> tuple[Array, float]:
    """Return the standard deviations (S,) of noise on a round's sums, of multiplier 1.

    Divided by its greatest length, each of the m sums that noise hides moves by at most 1 with an
    example, and all together by √m: the Gaussian mechanism of sensitivity √m in these units.

    Args:
        measurements: What is measured in the round.
        longest: The longest features of an example.
        sizes: Those of the last layer.

    Returns:
        They, and √m.
    """
    counts, units = [], []
    for each in measurements:
        lengths = each.lengths(longest, sizes)
        for name, shape in each.shapes(sizes).items():
            counts.append(int(np.prod(shape)))
            units.append(lengths[name] * (1.0 + ROUNDING))
    root = float(np.sqrt(np.count_nonzero(units)))
    return root * np.repeat(units, counts), root


def greatest(examples: int) -> float:
    """Return the greatest absolute value of any sum over so many examples."""
    return examples * FEATURE_BOUND**2
