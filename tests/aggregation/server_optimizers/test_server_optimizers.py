"""Every registered server optimizer: one contract, and the formulas of Flower's own strategies."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from bfl.aggregation.server_optimizers import ServerOptimizer, State, StepContext, server_optimizers
from bfl.posteriors import Posterior

ALL = [server_optimizers.create(name) for name in server_optimizers.names()]


def posteriors(rounds: int, *, seed: int = 0, dtype: Any = np.float64) -> Iterator[Posterior]:
    """Yield an initial posterior and what some rounds have pooled."""
    generator = np.random.default_rng(seed)
    for _ in range(rounds + 1):
        yield Posterior(
            generator.normal(size=7).astype(dtype),
            generator.uniform(0.1, 1.0, size=7).astype(dtype),
            generator.normal(size=3).astype(dtype),
        )


def run(optimizer: ServerOptimizer, pools: list[Posterior]) -> list[Posterior]:
    """Return the global posteriors of the rounds, the first being the initial one."""
    state: State = {}
    trajectory = [pools[0]]
    for number, pooled in enumerate(pools[1:], start=1):
        state, following = optimizer.apply(state, trajectory[-1], pooled, StepContext(number))
        trajectory.append(following)
    return trajectory


@pytest.mark.parametrize("optimizer", ALL, ids=lambda optimizer: optimizer.name)
def test_variances_and_points_that_must_stay_are_the_pools(optimizer: ServerOptimizer) -> None:
    previous, pooled = posteriors(1, dtype=np.float32)
    moves = np.array([True, False, True])
    _, following = optimizer.apply({}, previous, pooled, StepContext(1), moves_point=moves)
    following.check(like=pooled)
    assert following.point[1] == pooled.point[1]
    assert following.mean.dtype == following.variance.dtype == np.float32
    if type(optimizer).apply is not ServerOptimizer.apply:  # it says itself what it moves
        return
    np.testing.assert_array_equal(following.variance, pooled.variance)
    if optimizer.active:
        assert np.all(following.point[moves] != pooled.point[moves])
        assert np.all(following.mean != pooled.mean)


@pytest.mark.parametrize("optimizer", ALL, ids=lambda optimizer: optimizer.name)
def test_a_state_taken_up_again_goes_on_with_the_same_bits(optimizer: ServerOptimizer) -> None:
    pools = list(posteriors(3))
    whole = run(optimizer, pools)
    state: State = {}
    current = pools[0]
    for number, pooled in enumerate(pools[1:], start=1):
        state = {name: np.array(array) for name, array in state.items()}  # as a checkpoint has it
        state, current = optimizer.apply(state, current, pooled, StepContext(number))
    np.testing.assert_array_equal(current.mean, whole[-1].mean)
    np.testing.assert_array_equal(current.point, whole[-1].point)


def test_a_velocity_may_be_a_running_average() -> None:
    """As FedBE's code has it: two rounds of averaging, then v ← 0.9 v + 0.1 Δ and θ ← θ + v."""
    settings = {"server-momentum": 0.9, "server-velocity": "average"}
    pools = list(posteriors(4))
    found = run(server_optimizers.create("momentum", settings), pools)
    for number in (1, 2):
        np.testing.assert_allclose(found[number].mean, pools[number].mean, rtol=1e-12)
    velocity = pools[2].mean - found[1].mean
    for number in (3, 4):
        velocity = 0.9 * velocity + 0.1 * (pools[number].mean - found[number - 1].mean)
        np.testing.assert_allclose(found[number].mean, found[number - 1].mean + velocity)
    plain = run(server_optimizers.create("momentum", {"server-momentum": 0.9}), pools)
    assert not np.allclose(found[2].mean, plain[2].mean)


def test_momentum_of_0_at_rate_1_takes_the_pool_bit_for_bit() -> None:
    previous, pooled = posteriors(1, dtype=np.float32)
    optimizer = server_optimizers.create("momentum", {"server-momentum": 0.0})
    state, following = optimizer.apply({}, previous, pooled, StepContext(1))
    assert following is pooled
    assert state == {}


def _flowers_replies(pooled: Posterior) -> list[Any]:
    from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict

    from bfl.engine.flower.replies import set_message_id

    arrays = ArrayRecord({"mean": Array(pooled.mean), "point": Array(pooled.point)})
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})})
    asked = Message(RecordDict(), 1, "train")
    set_message_id(asked, "asked")
    return [Message(content, reply_to=asked)]


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_five_rounds_are_flowers(name: str) -> None:
    from flwr.app import Array, ArrayRecord
    from flwr.serverapp import strategy

    from bfl.engine.flower import new_run

    new_run({})  # Flower's messages take their sender from it
    settings = {"server-learning-rate": 0.7, "server-momentum": 0.9} if name == "momentum" else {}
    pools = list(posteriors(5))
    ours = run(server_optimizers.create(name, settings), pools)
    flower: Any = strategy.FedAvgM(**{key.replace("-", "_"): v for key, v in settings.items()})
    flower = flower if name == "momentum" else strategy.FedAdam()
    current = ArrayRecord({"mean": Array(pools[0].mean), "point": Array(pools[0].point)})
    flower.current_arrays = (
        current if name == "momentum" else {key: array.numpy() for key, array in current.items()}
    )
    for number, (pooled, expected) in enumerate(zip(pools[1:], ours[1:], strict=True), start=1):
        current, _ = flower.aggregate_train(number, _flowers_replies(pooled))
        if name != "momentum":  # Flower sets it when it configures the next round
            flower.current_arrays = {key: array.numpy() for key, array in current.items()}
        np.testing.assert_allclose(expected.mean, current["mean"].numpy(), rtol=1e-12)
        np.testing.assert_allclose(expected.point, current["point"].numpy(), rtol=1e-12)
