"""What every refinement and every predictive keeps to; refused before the first round."""

import copy
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy_server import NumpyServer
from small_federation import arguments, make_app, make_grid

import strategies.start
from bfl.aggregation.refinements import Refinement, refinements
from bfl.aggregation.samplers import ClientModels, GaussianSampler, samplers
from bfl.aggregation.server import RoundContext, UsesServer
from bfl.configuration import resolve
from bfl.data.datasets.server_data import ServerData
from bfl.errors import ConfigurationError, RunError
from bfl.evaluation.predictives import Predictive, predictives
from bfl.federation.wire import posterior_to_arrays
from bfl.posteriors import Posterior
from strategies import NaiveWeightedAveraging
from strategies.method import Method

D, P = 4, 2


def posterior(seed: int) -> Posterior:
    generator = np.random.default_rng(seed)
    return Posterior(
        generator.normal(size=D).astype(np.float32),
        generator.uniform(0.1, 0.5, D).astype(np.float32),
        generator.normal(size=P).astype(np.float32),
    )


def round_context(server_round: int = 1, seed: int = 0) -> RoundContext:
    """Return a round as every part may have it."""
    previous, pooled = posterior(8), posterior(9)
    models = ClientModels([posterior(k) for k in range(3)], range(3), (5, 6, 7), previous, pooled)
    sampler = samplers.create("gaussian")
    server = NumpyServer(D + P)
    return RoundContext(seed, server_round, previous, pooled, sampler, models, server)


@pytest.mark.parametrize("refinement", refinements.classes(), ids=lambda cls: cls.name)
def test_a_refinement_gives_the_same_posterior_for_the_same_round(
    refinement: type[Refinement],
) -> None:
    first, second = (refinement().refine(round_context()) for _ in range(2))
    assert first.posterior.digest() == second.posterior.digest()
    assert first.metrics == second.metrics
    first.posterior.check(like=posterior(9))
    for name in ("mean", "variance", "point"):
        expected = getattr(posterior(9), name).dtype
        assert getattr(first.posterior, name).dtype == expected
    assert all(np.isfinite(value) for value in first.metrics.values())


@pytest.mark.parametrize("refinement", refinements.classes(), ids=lambda cls: cls.name)
def test_a_refinement_declares_what_it_moves_and_needs(refinement: type[Refinement]) -> None:
    made, context = refinement(), round_context()
    before = copy.deepcopy((context.pooled, context.previous))
    moved = made.refine(context).posterior.digest() != context.pooled.digest()
    assert moved == ("refined-pool" in made.has())
    assert made.needs_server == ("server-images" in made.requires())
    if not made.needs_models:
        made.refine(replace(context, clients=None))
    if not made.needs_server:
        made.refine(replace(context, server=None))
    for left, now in zip(before, (context.pooled, context.previous), strict=True):
        assert left.digest() == now.digest()


@pytest.mark.parametrize("predictive", predictives.classes(), ids=lambda cls: cls.name)
def test_a_predictive_has_the_same_models_from_what_it_keeps(predictive: type[Predictive]) -> None:
    made = predictive()
    context = round_context()
    kept = made.keep(context if made.needs_models else replace(context, clients=None))
    again = {name: np.array(array) for name, array in kept.items()}
    given: dict[str, Any] = {"sampler": context.sampler, "manifest": None, "seed": 0}
    first, second = (
        [
            (member.name, member.values.tobytes(), member.point.tobytes())
            for member in made.models(arrays, **given, server_round=1) or ()
        ]
        for arrays in (kept, again)
    )
    assert first == second
    assert len({name for name, *_ in first}) == len(first)
    for member in made.models(kept, **given, server_round=1) or ():
        assert (member.values.shape, member.point.shape) == ((D,), (P,))
        assert np.isfinite(member.values).all()


def test_models_that_nobody_has_asked_for_are_not_there() -> None:
    with pytest.raises(RunError, match="has to need them"):
        _ = replace(round_context(), clients=None).models


def start(**given: Any) -> None:
    strategy = NaiveWeightedAveraging(**arguments(**given))
    strategy.start(make_grid(make_app()), posterior_to_arrays(posterior(0)), num_rounds=1)


@pytest.mark.parametrize("part", [{"refinement": "distillation"}, {"weighting": "abavg"}], ids=str)
def test_a_strategy_without_a_server_refuses_parts_that_need_one(part: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="needs images and a network of the server's own"):
        start(**part)
    start(**part, server=NumpyServer(D + P))


class Asking(GaussianSampler, UsesServer):
    """A sampler that asks the server, which none of bfl's does."""

    name: ClassVar[str] = "asking"
    needs_server: ClassVar[bool] = True

    def check(self, data: ServerData | None) -> None:
        raise ConfigurationError("these data do not serve")


def test_a_part_of_any_kind_that_asks_the_server_is_held_to_it() -> None:
    method = replace(Method.of(resolve({})), sampler=Asking())
    with pytest.raises(ConfigurationError, match="sampler 'asking' needs images and a network of"):
        strategies.start.check_server_side(method, None)
    with pytest.raises(ConfigurationError, match="these data do not serve"):
        strategies.start.check_server_side(method, NumpyServer(D + P))
