"""Several closings in as few rounds of sums as they take, as pure functions of arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bfl.closing.base import ENDED, FEATURE_BOUND, Array, Closing, Examples, Known, Shape, Sums
from bfl.closing.curvature import ROUNDED
from bfl.cpus import one_thread

ROUNDS = "rounds."
"""The prefix of a closing's name in the array that counts its rounds."""

Chain = Sequence[Closing]


def asked(chain: Chain, known: Known) -> tuple[Closing, ...]:
    """Return the closings that take part in the next round of sums; none when all have finished."""
    left = [
        each
        for each in chain
        if int(known.get(f"{ROUNDS}{each.name}", 0)) < each.rounds
        and f"{ENDED}{each.name}" not in known
    ]
    return tuple(each for each in left if not each.waits) or tuple(left[:1])


def most_rounds(chain: Chain) -> int:
    """Return how many rounds of sums a chain takes at most."""
    at_once = max((each.rounds for each in chain if not each.waits), default=0)
    return at_once + sum(each.rounds for each in chain if each.waits)


def told(chain: Chain, known: Known) -> Known:
    """Return the arrays that clients need in the next round."""
    names = {name for each in asked(chain, known) for name in each.told}
    return {
        k: np.asarray(v) for k, v in known.items() if k in names or k.startswith((ROUNDS, ENDED))
    }


def length(chain: Chain, features: int, classes: int, stages: Sequence[int] = ()) -> int:
    """Return the length of a vector of sums, for F features, C classes and stages' widths."""
    return sum(
        int(np.prod(shape))
        for each in chain
        for shape in _shapes(each, features, classes, stages).values()
    )


def _shapes(
    closing: Closing, features: int, classes: int, stages: Sequence[int]
) -> Mapping[str, Shape]:
    """Return the shapes of all sums of a closing."""
    return {
        **closing.shapes(features, classes),
        **closing.shapes_of_stages(stages, classes),
    }


def measured(
    chain: Chain,
    known: Known,
    examples: Examples,
    held_back: Examples,
) -> Array:
    """Return a client's sums as one vector, in the order of ``shapes``.

    Linear algebra has one thread, so that no bit depends on how many there are.

    Args:
        chain: The closings.
        known: What the client is ``told``.
        examples: What it has trained on.
        held_back: What it has held back, maybe nothing; the same where no client holds any back.
    """
    features, widths = examples.features.shape[1] - 1, [x.shape[1] for x in examples.stages]
    rows: list[Array] = [np.zeros(0)]
    with one_thread():
        for each in asked(chain, known):
            shapes = _shapes(each, features, examples.classes, widths)
            seen = held_back if each.on_held_back else examples
            empty = {name: np.zeros(shape) for name, shape in shapes.items()}
            sums = each.measure(known, seen) if seen.labels.size else empty
            rows += [np.ravel(sums[name]) for name in shapes]
    return np.concatenate(rows)


def folded(
    chain: Chain,
    known: Known,
    total: Array,
    features: int,
    classes: int,
    stages: Sequence[int] = (),
) -> Known:
    """Return what is known after a round.

    Args:
        chain: The closings.
        known: What was known before.
        total: All clients' vectors, added up.
        features: The number F of features.
        classes: The number C of classes.
        stages: The widths of the stages before.
    """
    after = known
    with one_thread():
        for each, sums in _by_closing(chain, known, total, features, classes, stages):
            number = int(known.get(f"{ROUNDS}{each.name}", 0)) + 1
            after = {**each.fold(after, sums), f"{ROUNDS}{each.name}": np.array(number)}
    return after


def implausible(
    chain: Chain,
    known: Known,
    vector: Array,
    features: int,
    classes: int,
    examples: int,
    stages: Sequence[int] = (),
    *,
    noised: bool = False,
) -> str | None:
    """Return why so many examples cannot have such sums; None if they may.

    Args:
        chain: The closings.
        known: What was known before the round.
        vector: What one client has sent, or several together.
        features: The number F of features.
        classes: The number C of classes.
        examples: How many examples they are said to be of.
        stages: The widths of the stages before.
        noised: Whether they have privacy's noise.
    """
    most = greatest(examples)
    if beyond := int(np.count_nonzero(~(np.abs(vector) <= most * (1.0 + ROUNDED)))):
        return f"{beyond} of {vector.size} sums are beyond ±{most:g}"
    found = list(_by_closing(chain, known, vector, features, classes, stages))
    beside = {each.name: sums for each, sums in found}
    for each, sums in found:
        if problem := each.implausible(sums, examples, noised=noised, beside=beside):
            return f"sums for {each.name} that {examples} examples cannot have: {problem}"
    return None


def _by_closing(
    chain: Chain, known: Known, vector: Array, features: int, classes: int, stages: Sequence[int]
) -> Iterator[tuple[Closing, Sums]]:
    """Yield the closings that take part in a round, each with its sums in a vector of all."""
    start = 0
    for each in asked(chain, known):
        sums = {}
        for name, shape in _shapes(each, features, classes, stages).items():
            size = int(np.prod(shape))
            sums[name] = np.asarray(vector[start : start + size], np.float64).reshape(shape)
            start += size
        yield each, sums


def deviations(
    chain: Chain,
    known: Known,
    longest: float,
    features: int,
    classes: int,
    stages: Sequence[int] = (),
) -> tuple[Array, float]:
    """Return the standard deviations (S,) of noise on a round's sums, of multiplier 1.

    Divided by its greatest length, each of the m sums that noise hides moves by at most 1 with an
    example, and all together by √m: the Gaussian mechanism of sensitivity √m in these units.

    Args:
        chain: The closings.
        known: What clients are ``told``.
        longest: The longest features of an example.
        features: The number F of features.
        classes: The number C of classes.
        stages: The widths of the stages before.

    Returns:
        They, and √m.
    """
    sizes, units = [], []
    for each in asked(chain, known):
        lengths = each.lengths(longest, classes) or {}
        for name, shape in _shapes(each, features, classes, stages).items():
            sizes.append(int(np.prod(shape)))
            units.append(lengths[name.partition(".")[0]] * (1.0 + ROUNDING))
    root = float(np.sqrt(np.count_nonzero(units)))
    return root * np.repeat(units, sizes), root


ROUNDING = 1e-9
"""By how much more than its bound an example may add, by rounding in float64."""


def greatest(examples: int) -> float:
    """Return the greatest absolute value of any sum over so many examples."""
    return examples * FEATURE_BOUND**2
