"""Which members an ensemble has, and how their moving statistics stay valid."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from test_samplers import client_models

from bfl.aggregation.ensemble import EnsembleMembers, Member
from bfl.aggregation.samplers import ClientModels, Sampler, samplers


def members(**settings: Any) -> list[Member]:
    made = EnsembleMembers(**settings)
    return list(made.members(client_models(), samplers.create("gaussian"), 3, 2))


def same(one: Member, other: Member) -> bool:
    return np.array_equal(one.values, other.values) and np.array_equal(one.point, other.point)


def test_each_kind_of_member_is_switchable() -> None:
    names = {
        (): ["sample-0", "sample-1", "average", "client-0", "client-1", "client-2"],
        ("ensemble_average",): ["sample-0", "sample-1", "client-0", "client-1", "client-2"],
        ("ensemble_clients",): ["sample-0", "sample-1", "average"],
        ("ensemble_average", "ensemble_clients"): ["sample-0", "sample-1"],
    }
    for off, expected in names.items():
        settings: dict[str, Any] = dict.fromkeys(off, False)
        assert [m.name for m in members(ensemble_samples=2, **settings)] == expected
    assert len(members()) == 10 + 1 + 3


def test_an_ensemble_without_a_member_is_refused() -> None:
    with pytest.raises(ValidationError, match="no member"):
        EnsembleMembers(ensemble_samples=0, ensemble_average=False, ensemble_clients=False)


def test_a_sample_is_drawn_by_seed_round_and_number() -> None:
    two, five = members(ensemble_samples=2), members(ensemble_samples=5)
    assert all(same(a, b) for a, b in zip(two[:2], five[:2], strict=True))
    made, sampler = EnsembleMembers(ensemble_samples=1), samplers.create("gaussian")
    base = next(made.members(client_models(), sampler, 3, 2))
    assert same(base, two[0])
    for seed, server_round in ((3, 3), (4, 2)):
        assert not same(base, next(made.members(client_models(), sampler, seed, server_round)))
    assert not same(two[0], two[1])


def test_a_draw_of_a_client_is_made_by_seed_round_client_and_number() -> None:
    """And by nothing else, as which others reply: the clients here have all the same posterior."""
    made = EnsembleMembers(ensemble_samples=0, ensemble_average=False, client_draws=2)
    models = client_models()
    alike = replace(models, posteriors=[models.posteriors[0]] * len(models.posteriors))

    def drawn(seed: int, server_round: int, of: ClientModels = alike) -> dict[str, bytes]:
        found = made.members(of, samplers.create("gaussian"), seed, server_round)
        return {member.name: member.values.tobytes() for member in found}

    base = drawn(3, 2)
    assert list(base)[1:3] == ["client-0-draw-1", "client-1-draw-0"]
    every = [*base.values(), *drawn(4, 2).values(), *drawn(3, 3).values()]
    assert len(set(every)) == len(every) == 3 * 3 * 2
    alone = ClientModels(
        alike.posteriors[:1], [1], alike.num_examples[:1], alike.previous, alike.average
    )
    of_one = drawn(3, 2, alone)
    assert of_one == {name: base[name] for name in ("client-1-draw-0", "client-1-draw-1")}


def test_clients_are_their_means_or_draws_of_their_own() -> None:
    models = client_models()
    means = members(ensemble_samples=0, ensemble_average=False)
    for member, posterior in zip(means, models.posteriors, strict=True):
        np.testing.assert_array_equal(member.values, posterior.mean)
    draws = members(ensemble_samples=0, ensemble_average=False, client_draws=2_000)
    assert [d.name for d in draws[:2]] == ["client-0-draw-0", "client-0-draw-1"]
    values = np.stack([d.values for d in draws[:2_000]])
    np.testing.assert_allclose(values.mean(axis=0), models.posteriors[0].mean, atol=0.03)
    np.testing.assert_allclose(values.std(axis=0), 0.3, rtol=0.08)


class Wild(Sampler):
    """Draws what no moving variance may be."""

    def fit(self, models: ClientModels) -> Callable[[np.random.Generator], Any]:
        return lambda generator: np.full(7, -5.0)


def test_sampled_moving_variances_stay_positive() -> None:
    made, models = EnsembleMembers(ensemble_samples=1), client_models()
    member = next(made.members(models, Wild(), 0, 1))
    least = np.min([p.point[2:] for p in models.posteriors], axis=0)
    np.testing.assert_array_equal(member.point[2:], least)
    assert (least > 0).all()
    np.testing.assert_array_equal(member.point[:2], -5.0)


def test_no_client_alone_takes_sampled_moving_variances_to_nothing() -> None:
    made, models = EnsembleMembers(ensemble_samples=1), client_models()
    silent = replace(models.posteriors[0], point=np.zeros_like(models.posteriors[0].point))
    of_all = replace(models, posteriors=[silent, *models.posteriors[1:]])
    member = next(made.members(of_all, Wild(), 0, 1))
    least = models.average.point[2:] / len(models.posteriors)
    assert (least > 0).all()
    np.testing.assert_array_equal(member.point[2:], least)
