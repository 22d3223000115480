"""Honest sums pass, whatever they are of; sums of the same examples that were changed do not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_closings import CLASSES, FEATURES, all_closings, examples, start

from bfl.closing.base import HEAD, Closing, Examples, with_one
from bfl.closing.chain import implausible, measured, told

FACTORS = {"examples": [1.5, 0.0, -1.0], "counts": [2.0, 0.9, -1.0], "second": [0.0, -1.0]}
"""By what an honest client's sums of a name are multiplied; others by −1."""


def checking() -> list[Closing]:
    """Return the closings that look at what clients send; the others believe it."""
    return [each for each in all_closings() if type(each).implausible is not Closing.implausible]


@pytest.mark.parametrize("closing", checking(), ids=lambda closing: f"{closing.name} {closing}")
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1000),
    count=st.integers(1, 60),
    scale=st.sampled_from([0.0, 1e-6, 1.0, 30.0, 1e30]),
    sharp=st.sampled_from([0.0, 1.0, 100.0]),
)
def test_honest_sums_pass_and_changed_ones_do_not(closing, seed, count, scale, sharp) -> None:
    made = examples(seed, count)
    own = Examples(with_one(scale * made.features[:, :-1]), made.labels, CLASSES)
    begin = start()
    begin[HEAD] = sharp * begin[HEAD]
    vector = measured((closing,), told((closing,), begin), own, own)
    rounded = vector.astype(np.float32).astype(np.float64)

    def problem(sums: np.ndarray, examples: int = count) -> str | None:
        return implausible((closing,), begin, sums, FEATURES, CLASSES, examples)

    assert problem(vector) is None
    assert problem(rounded) is None
    place, light = 0, False
    for name, shape in closing.shapes(FEATURES, CLASSES).items():
        part = slice(place, place + int(np.prod(shape)))
        place = part.stop
        if name not in ("first", "second", "log-likelihood", "by-temperature"):  # of any size
            added = vector.copy()
            added[part.stop - 1] += 3 * count
            assert problem(added), name
        light = light or bool(np.abs(vector[part]).max() < 1e-2 * count)
        for factor in FACTORS.get(name, [-1.0]):
            changed = vector.copy()
            changed[part] *= factor
            assert problem(changed) or light or name in ("gradient", "first"), (name, factor)
