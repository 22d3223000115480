"""What an update is on its way out: clipped to the bound, noised as said, or the same bits."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bfl.federation.outgoing import (
    Outgoing,
    change_pool_by,
    change_update_by,
    length_problem,
    outgoing_parts,
)
from bfl.federation.parts import Counts
from bfl.federation.privacy import Normals, SystemNormals, add_difference, difference
from bfl.posteriors import Posterior

FLOATS = ("float32", "float64")


def posterior(seed: int, size: int, points: int, scale: float, dtype: str = "float32") -> Posterior:
    rng = np.random.default_rng(seed)
    return Posterior(
        (scale * rng.standard_normal(size)).astype(dtype),
        np.exp(rng.normal(-4, 2, size)).astype(dtype),
        (scale * rng.standard_normal(points)).astype(dtype),
    )


def chain(word: str, **values: Any) -> tuple[Outgoing, ...]:
    named = {key.replace("_", "-"): value for key, value in values.items()}
    return tuple(outgoing_parts.create(link, named) for link in word.split("+"))


def out(
    word: str,
    learned: Posterior,
    received: Posterior,
    normals: Normals | None = None,
    **values: Any,
) -> Posterior:
    return change_update_by(
        chain(word, **values), learned, received, normals or np.random.default_rng(0)
    )


@pytest.mark.parametrize("name", outgoing_parts.names())
@pytest.mark.parametrize("points_only", [False, True])
def test_what_is_sent_looks_like_an_update(name: str, points_only: bool) -> None:
    received, learned = (posterior(s, 0 if points_only else 50, 9, 3.0) for s in (0, 1))
    once, again = (out(name, learned, received) for _ in range(2))
    once.check(like=learned)
    assert {getattr(once, v).dtype for v in ("mean", "variance", "point")} == {np.dtype("float32")}
    assert once.digest() == again.digest()
    assert (once is learned) == (not outgoing_parts.create(name).active)


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 1000),
    size=st.integers(0, 40),
    points=st.integers(1, 20),
    scale=st.floats(1e-6, 1e6),
    bound=st.floats(1e-6, 1e3),
    dtype=st.sampled_from(FLOATS),
)
def test_no_difference_is_longer_than_the_bound(
    seed: int, size: int, points: int, scale: float, bound: float, dtype: str
) -> None:
    """As it is sent, after rounding, to the last bit."""
    received, learned = (posterior(seed + s, size, points, scale, dtype) for s in (0, 1))
    clipped = out("clip", learned, received, clip_norm=bound)
    assert float(np.linalg.norm(difference(received, clipped))) <= bound
    before = difference(received, learned)
    if float(np.linalg.norm(before)) <= bound:
        assert clipped is learned


def test_clipping_keeps_the_direction_and_uses_the_bound() -> None:
    received, learned = posterior(0, 500, 100, 1.0), posterior(1, 500, 100, 1.0)
    whole = difference(received, learned)
    clipped = difference(received, out("clip", learned, received, clip_norm=2.0))
    norm = float(np.linalg.norm(clipped))
    assert norm == pytest.approx(2.0, rel=1e-4)
    assert clipped @ whole / (norm * np.linalg.norm(whole)) == pytest.approx(1.0, abs=1e-8)
    # Variances count, in log σ: those of the update move as means and points do.
    assert np.linalg.norm(clipped[600:]) == pytest.approx(
        2.0 * np.linalg.norm(whole[600:]) / np.linalg.norm(whole), rel=1e-3
    )


@pytest.mark.parametrize("normals", [np.random.default_rng(1), SystemNormals()])
def test_noise_has_the_variance_that_is_said(normals: Normals) -> None:
    """In each coordinate, log σ included, of a client that has learned nothing."""
    received = posterior(0, 40_000, 20_000, 1.0, "float64")
    noised = out("clip+noise", received, received, normals, clip_norm=0.5, noise_multiplier=0.8)
    change = difference(received, noised)
    for part in np.split(change, [40_000, 60_000]):
        assert part.std() == pytest.approx(0.4, rel=0.03)
        assert abs(part.mean()) < 5 * 0.4 / part.size**0.5
        assert abs(np.corrcoef(part[:-1], part[1:])[0, 1]) < 0.04


def test_noise_is_added_to_what_is_clipped() -> None:
    """So that an update ten times as long is sent as the very same numbers."""
    received, learned = posterior(0, 50, 5, 1.0, "float64"), posterior(1, 50, 5, 1.0, "float64")
    farther = add_difference(received, 10 * difference(received, learned))
    np.testing.assert_allclose(farther.mean - received.mean, 10 * (learned.mean - received.mean))
    np.testing.assert_allclose(
        np.log(farther.variance / received.variance),
        10 * np.log(learned.variance / received.variance),
    )
    one, other = (out("clip+noise", p, received, clip_norm=0.1) for p in (learned, farther))
    np.testing.assert_allclose(difference(received, one), difference(received, other), atol=1e-9)
    assert not np.allclose(difference(received, one), 0.0, atol=0.05)


@pytest.mark.parametrize("multiplier", [10.0, 1e3, 1e6])
def test_no_noise_makes_a_variance_negative_or_infinite(multiplier: float) -> None:
    received = posterior(0, 5000, 5, 1.0)
    noised = out("clip+noise", received, received, noise_multiplier=multiplier)
    noised.check(like=received)
    assert noised.variance.min() >= np.finfo(np.float32).tiny


def test_without_noise_and_below_the_bound_nothing_is_touched() -> None:
    received, learned = posterior(0, 50, 5, 1.0), posterior(1, 50, 5, 1.0)
    for word, values in (
        ("none", {}),
        ("noise", {"noise_multiplier": 0.0}),
        ("clip+noise", {"noise_multiplier": 0.0, "clip_norm": 1e6}),
    ):
        assert out(word, learned, received, **values) is learned
        parts = chain(word, **values)
        assert (
            change_pool_by(parts, learned, received, Counts(2, 2, 2, 1), SystemNormals()) is learned
        )
    assert out("clip+noise", learned, received, noise_multiplier=0.1) is not learned


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("noise_at", ["clients", "server"])
def test_that_training_has_diverged_is_hidden_where_updates_are_private(
    bad: float, noise_at: str
) -> None:
    received = posterior(0, 50, 5, 1.0)
    learned = Posterior(received.mean.copy(), received.variance, received.point)
    learned.mean[3] = bad
    still = out("clip+noise", received, received, noise_at=noise_at)
    assert out("clip+noise", learned, received, noise_at=noise_at).digest() == still.digest()
    # Without noise it is for the server's checks to find.
    assert out("clip", learned, received) is learned


def test_the_server_adds_noise_to_a_sum_over_all_that_were_asked() -> None:
    """Two of eight have failed: their differences count as 0, and the noise is that of eight."""
    previous, pooled = posterior(0, 40_000, 100, 1.0, "float64"), posterior(1, 40_000, 100, 1.0)
    parts = chain("clip+noise", clip_norm=0.5, noise_multiplier=2.0, noise_at="server")
    counts = Counts(asked=8, pooled=6, clients=8, server_round=1)
    noised = change_pool_by(parts, pooled, previous, counts, np.random.default_rng(0))
    noise = difference(previous, noised) - 0.75 * difference(previous, pooled)
    assert noise.std() == pytest.approx(2.0 * 0.5 / 8, rel=0.02)
    # And clients send what is clipped, without noise.
    clipped = change_update_by(
        parts, pooled, posterior(0, 40_000, 100, 1.0), np.random.default_rng(0)
    )
    bound = np.linalg.norm(difference(posterior(0, 40_000, 100, 1.0), clipped))
    assert 0.49 < bound <= 0.5
    # By clients, the server adds none.
    own = chain("clip+noise")
    assert change_pool_by(own, pooled, previous, counts, np.random.default_rng(0)) is pooled


@pytest.mark.parametrize("name", [c.name for c in outgoing_parts.classes() if not c.lengthens])
def test_a_part_that_says_so_makes_nothing_longer(name: str) -> None:
    part = outgoing_parts.create(name)
    rng = np.random.default_rng(0)
    for scale in (1e-3, 1.0, 1e3):
        before = scale * rng.standard_normal(200)
        for after in (
            part.change(before, rng),
            part.change_pool(before, Counts(asked=4, pooled=3, clients=4, server_round=1), rng),
        ):
            assert np.linalg.norm(after) <= np.linalg.norm(before)


class Doubled(Outgoing):
    """Twice the difference, which nobody may rest a sensitivity on."""

    stage = 1

    def change(self, difference: Any, normals: Normals) -> Any:
        return 2.0 * difference


class Claiming(Doubled):
    """It lengthens, and asks for clipped differences as noise does."""

    def requires(self) -> set[str]:
        return {"clipped-updates"}


class Halved(Doubled):
    """Half the difference."""

    lengthens = False


@pytest.fixture
def two_more() -> Iterator[None]:
    """Both of them are there to choose."""
    outgoing_parts.register("doubled")(Doubled)
    outgoing_parts.register("halved")(Halved)
    outgoing_parts.register("claiming")(Claiming)
    yield
    outgoing_parts.withdraw(lambda component: issubclass(component, Doubled))


@pytest.mark.parametrize(
    ("words", "noise_at", "blamed"),
    [
        ("doubled+clip+noise", "clients", ""),
        ("clip+doubled+noise", "clients", "doubled"),
        ("clip+halved+noise", "clients", ""),
        ("clip+claiming+noise", "clients", "claiming"),
        # Where the server adds it, clients double what it adds it to.
        ("clip+noise+doubled", "server", "doubled"),
        ("clip+noise+halved", "server", ""),
        ("clip+doubled", "clients", ""),
        ("none+clip+none+noise", "clients", ""),
    ],
)
@pytest.mark.usefixtures("two_more")
def test_nothing_lengthens_what_noise_takes_for_clipped(
    words: str, noise_at: str, blamed: str
) -> None:
    problem = length_problem(chain(words, noise_at=noise_at))
    assert bool(problem) == bool(blamed)
    if blamed:
        assert f"where '{blamed}' stands behind 'clip'" in problem
    if blamed != "claiming":  # which asks for the bound itself
        assert length_problem(chain(words, noise_at=noise_at, noise_multiplier=0.0)) == ""
