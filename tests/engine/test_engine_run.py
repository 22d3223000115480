"""A run that has been ended: nobody waits for it, nothing of it survives, no other is concerned."""

import importlib
import threading
import time
from typing import Any

import pytest
import ray
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.superlink.federation import NoOpFederationManager

from bfl.engine.flower import grid_of, simulation
from bfl.engine.flower.replies import Replies
from bfl.engine.flower.simulation import _PoolOfRun
from bfl.engine.run import EngineRun, run_of, runs_in_progress
from bfl.errors import RunError


def test_the_first_reason_counts_and_no_other_run_is_concerned() -> None:
    run, other = EngineRun(), EngineRun()
    run.raise_if_ended()
    run.end("power cut")
    run.end("flood")
    for _ in range(2):
        with pytest.raises(RunError, match="power cut"):
            run.raise_if_ended()
    other.raise_if_ended()


@pytest.mark.parametrize(
    ("error", "notes"), [(KeyboardInterrupt(), ["go on"]), (ValueError("no luck"), [])]
)
def test_an_exception_ends_the_run(error: BaseException, notes: list[str]) -> None:
    run = EngineRun()
    run.advice = "go on"
    seen = []

    def work() -> None:
        with run.in_progress(), run.in_progress():
            seen.extend(runs_in_progress())
            raise error

    with pytest.raises(type(error)) as raised:
        work()
    assert seen == [run]
    assert getattr(raised.value, "__notes__", []) == notes
    assert run.ended
    assert runs_in_progress() == []


def make_grid() -> Any:
    """Return a grid as Flower's simulation makes it for its ServerApp."""
    flower: Any = importlib.import_module("flwr.simulation.run_simulation")
    factory = LinkStateFactory(
        FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager(), ObjectStoreFactory()
    )
    return flower.InMemoryGrid(state_factory=factory)


def test_the_grid_of_a_run_raises_when_it_has_ended() -> None:
    run = EngineRun()
    with grid_of(run):
        grid = make_grid()
    assert run_of(grid) is run
    assert Replies(grid).interval < 0.01 < Replies(object()).interval
    run.end("power cut")
    for ask in (grid.get_node_ids, lambda: grid.push_messages([])):
        with pytest.raises(RunError, match="power cut"):
            ask()


class Pool:
    """A pool whose actor never replies."""

    num_actors = 1

    def fetch_result_and_return_actor_to_pool(self, future: Any) -> Any:
        raise AssertionError("asked for a result that is not there")


def test_who_waits_for_an_actor_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(futures: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        time.sleep(timeout)
        return [], futures

    monkeypatch.setattr(ray, "wait", wait)
    run = EngineRun()
    threading.Timer(0.3, run.end, ["power cut"]).start()
    with pytest.raises(RunError, match="power cut"):
        _PoolOfRun(Pool(), run).fetch_result_and_return_actor_to_pool("future")


def test_a_client_that_was_interrupted_with_the_run_has_not_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a terminal Ctrl-C reaches the actors too; that of this process may be seen later."""

    class Interrupted(Pool):
        def fetch_result_and_return_actor_to_pool(self, future: Any) -> Any:
            threading.Timer(0.05, run.end, ["interrupted"]).start()
            raise ValueError("cancelled")

    monkeypatch.setattr(ray, "wait", lambda futures, num_returns, timeout: (futures, []))
    run = EngineRun()
    with pytest.raises(RunError, match="interrupted"):
        _PoolOfRun(Interrupted(), run).fetch_result_and_return_actor_to_pool("future")


def test_threads_of_a_failed_run_have_ended_before_the_next() -> None:
    run = EngineRun()
    ended = []

    def server() -> None:
        while not run.ended:
            time.sleep(0.01)
        time.sleep(0.2)
        ended.append(True)

    def fail() -> None:
        with simulation._threads_ended(), run.in_progress():
            threading.Thread(target=server).start()
            raise ValueError("no luck")

    with pytest.raises(ValueError, match="no luck"):
        fail()
    assert ended
