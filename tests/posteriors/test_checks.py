"""What is checked of a posterior, once, and what a manifest knows of point parameters."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

from bfl.aggregation.pooling import pool, pooling_rules
from bfl.errors import PosteriorError
from bfl.posteriors import Manifest, Parameter, Posterior

MANIFEST = Manifest(
    (
        Parameter("dense/kernel", (2, 3), True, "he-normal"),
        Parameter("norm/offset", (2,), False, "zeros"),
        Parameter("norm/moving_variance", (3,), False, "ones", minimum=0.0),
        Parameter("dense/bias", (1,), False, "zeros"),
    )
)


def posterior(point: list[float], size: int = 6) -> Posterior:
    return Posterior(
        np.zeros(size, np.float32), np.ones(size, np.float32), np.array(point, np.float32)
    )


GOOD = [-1.0, -2.0, 0.0, 1.0, 1e-30, -3.0]


def test_only_parameters_with_a_minimum_are_held_to_it() -> None:
    MANIFEST.check(posterior(GOOD))
    with pytest.raises(
        PosteriorError, match=r"'norm/moving_variance' has 2 of 3 values below 0, the least -0\.5"
    ):
        MANIFEST.check(posterior([-1.0, -2.0, -0.5, 1.0, -0.25, -3.0]))


@pytest.mark.parametrize(("point", "size"), [(GOOD[:5], 6), (GOOD, 5)])
def test_sizes_are_the_networks(point: list[float], size: int) -> None:
    with pytest.raises(PosteriorError, match="expected 6"):
        MANIFEST.check(posterior(point, size))


def test_raised_to_the_minimum() -> None:
    raised = MANIFEST.raise_to_minima(posterior([-1.0, -2.0, -0.5, 1.0, -0.25, -3.0]))
    assert raised.point.tolist() == [-1.0, -2.0, 0.0, 1.0, 0.0, -3.0]


def test_the_minimum_is_saved_and_older_files_have_none() -> None:
    assert Manifest.from_json(MANIFEST.to_json()) == MANIFEST
    older = MANIFEST.to_json().replace(', "minimum": 0.0', "").replace(', "minimum": null', "")
    assert "minimum" not in older
    assert [p.minimum for p in Manifest.from_json(older)] == [None] * 4


def read_only(given: Posterior) -> Posterior:
    for vector in (given.mean, given.variance, given.point):
        vector.setflags(write=False)
    return given


def test_values_that_cannot_change_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed, changing = read_only(posterior(GOOD)), posterior(GOOD)
    for each in (fixed, changing):
        each.check()
    assert fixed.known_sound
    assert not changing.known_sound
    changing.mean[0] = np.nan
    with pytest.raises(PosteriorError, match="not finite"):
        changing.check()
    assert not replace(fixed, mean=changing.mean).known_sound

    looked: list[Posterior] = []
    monkeypatch.setattr(
        "bfl.posteriors.posterior.between", lambda low, values, high: looked.append(values)
    )
    pool(pooling_rules.create("nwa"), [fixed, fixed], [1, 1], previous=fixed)
    assert not looked


def test_a_copy_that_can_change_is_not_known_as_sound() -> None:
    fixed = read_only(posterior(GOOD))
    fixed.check()
    assert fixed.known_sound
    for made in (copy.deepcopy(fixed), pickle.loads(pickle.dumps(fixed))):
        assert made.digest() == fixed.digest()
        assert made.known_sound == (not made.mean.flags.writeable)
        made.mean.setflags(write=True)
        made.mean[0] = np.nan
        with pytest.raises(PosteriorError, match="mean has 1 of 6"):
            made.check()
