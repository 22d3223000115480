"""Defences work block by block: in bounded memory, and without a trace in what they give."""

import tracemalloc

import numpy as np
import pytest

from bfl.aggregation.defences import Defence, by_blocks, defences
from bfl.posteriors import Posterior

CHANGING = pytest.mark.parametrize(
    "defence", [defences.create(name) for name in ("variance-floor", "winsorization")]
)


def clients(count: int, size: int) -> list[Posterior]:
    rng = np.random.default_rng(count)
    return [
        Posterior(
            rng.normal(size=size).astype(np.float32),
            np.exp(rng.normal(0, 3, size)).astype(np.float32),
        )
        for _ in range(count)
    ]


@CHANGING
@pytest.mark.parametrize("count", [4, 5])
def test_blocks_do_not_show(defence: Defence, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    posteriors = clients(count, 101)
    whole = [p.digest() for p in defence.protect(posteriors)]
    monkeypatch.setattr("bfl.aggregation.defences.ENTRIES", 16 * count)
    assert [p.digest() for p in defence.protect(posteriors)] == whole


@pytest.mark.parametrize("count", [1, 2, 7, 8])
def test_the_variance_floor_is_a_share_of_the_median(count: int) -> None:
    posteriors = clients(count, 101)
    protected = defences.create("variance-floor", {"variance-floor": 0.5}).protect(posteriors)
    variances = np.stack([p.variance for p in posteriors])
    expected = np.maximum(variances, 0.5 * np.median(variances, axis=0))
    np.testing.assert_allclose(np.stack([p.variance for p in protected]), expected, rtol=1e-6)


@CHANGING
def test_memory_is_that_of_the_result(defence: Defence) -> None:
    posteriors = clients(20, 400_000)
    tracemalloc.start()
    protected = defence.protect(posteriors)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    new = {id(v): v.nbytes for p in protected for v in (p.mean, p.variance)}
    old = {id(v) for p in posteriors for v in (p.mean, p.variance)}
    assert peak < sum(size for key, size in new.items() if key not in old) + 6e6


def test_every_coordinate_is_given_once() -> None:
    vectors = [np.arange(700_000, dtype=np.float64) + k for k in range(3)]
    seen: list[float] = []

    def change(block: np.ndarray) -> np.ndarray:
        seen.extend(block[0])
        return -block

    changed = by_blocks(vectors, change)
    assert seen == vectors[0].tolist()
    assert all(np.array_equal(new, -old) for new, old in zip(changed, vectors, strict=True))
