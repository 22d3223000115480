"""Nodes that are late, fail, are lost and come back."""

import time
from typing import Any

import pytest
from deployment_grid import FIRST_ID, DeploymentGrid
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from small_federation import arguments, make_app
from test_posterior_pooling import start

import strategies
import strategies.federation
from bfl.aggregation.weightings import weightings
from bfl.errors import ConfigurationError, RunError
from bfl.federation.node_description import NodeDescription, code_digest
from bfl.federation.wire import TrainTask, posterior_to_arrays
from bfl.posteriors import Posterior
from strategies.federation import Federation, discover
from strategies.server_state import Round


def queries(grid: DeploymentGrid) -> list[int]:
    return [node for node, kind in grid.asked if kind == "query"]


def test_a_slow_node_is_asked_once_and_its_late_answer_counts() -> None:
    grid = DeploymentGrid(make_app(), range(3), 3)
    grid.slow = {FIRST_ID + 1: 60}
    federation = discover(grid, 3, timeout=20.0, poll=0.001)
    assert grid.slow == {FIRST_ID + 1: 0}
    assert federation.nodes == {0: FIRST_ID, 1: FIRST_ID + 1, 2: FIRST_ID + 2}
    assert sorted(queries(grid)) == [FIRST_ID, FIRST_ID + 1, FIRST_ID + 2]


def test_nodes_that_nobody_simulates_are_not_taken_for_simulated_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grid = DeploymentGrid(make_app(noise_anew=False), range(2), 2)
    assert discover(grid, 2, timeout=20.0, poll=0.001).simulated
    monkeypatch.setattr(strategies.federation, "is_simulation", lambda grid: False)
    assert not discover(grid, 2, timeout=20.0, poll=0.001).simulated


def test_a_node_that_has_lost_the_question_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategies.federation, "AGAIN_AFTER_SILENCE", 0.05)
    grid = DeploymentGrid(make_app(), range(2), 2)
    push = grid.push_messages

    def lose_the_first(messages: Any) -> Any:
        ids = list(push(messages))
        if len(grid.asked) == 2:
            del grid._waiting[ids[1]]
        return ids

    grid.push_messages = lose_the_first  # type: ignore[method-assign]
    assert discover(grid, 2, timeout=20.0, poll=0.001).size == 2
    assert queries(grid) == [FIRST_ID, FIRST_ID + 1, FIRST_ID + 1]


def test_a_silent_node_ends_the_wait_at_the_deadline_and_is_named() -> None:
    grid = DeploymentGrid(make_app(), [0, 2, 1], 4)
    grid.slow = {FIRST_ID + 1: 10**9}
    began = time.monotonic()
    with pytest.raises(RunError) as caught:
        discover(grid, 0, timeout=0.5, poll=0.01)
    assert 0.5 <= time.monotonic() - began < 2.0
    for said in ("2 of 4 nodes are there after 0.5 s", "without partition 2, partition 3"):
        assert said in str(caught.value)
    assert f"node {FIRST_ID + 1} does not report its partition" in str(caught.value)
    assert queries(grid).count(FIRST_ID + 1) == 1


def failing(times: int) -> ClientApp:
    """Return an app whose node of partition 1 fails as often to say who it is."""
    app, failures = ClientApp(), iter(range(times))

    @app.query()
    def query(message: Message, context: Context) -> Message:
        partition_id = int(context.node_config["partition-id"])
        if partition_id == 1 and next(failures, None) is not None:
            raise OSError("no such archive")
        return Message(
            NodeDescription(partition_id, 2, 0, code_digest()).to_content(), reply_to=message
        )

    return app


def test_a_node_that_fails_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategies.federation, "AGAIN_AFTER_FAILURE", 0.02)
    grid = DeploymentGrid(failing(2), range(2), 2)
    assert discover(grid, 2, timeout=20.0, poll=0.001).size == 2
    assert queries(grid) == [FIRST_ID, FIRST_ID + 1, FIRST_ID + 1, FIRST_ID + 1]


def gone(grid: DeploymentGrid) -> DeploymentGrid:
    grid.kill(FIRST_ID, noticed=False)
    return grid


@pytest.mark.parametrize(
    ("grid", "error", "said"),
    [
        # The error listed all that were missing: 60 GB for a node that said a billion.
        (
            DeploymentGrid(make_app(num_partitions=10**5), [0], 1),
            RunError,
            r"1 of 100000 nodes .* partition 50 and others",
        ),
        (
            DeploymentGrid(failing(10**9), range(2), 2),
            RunError,
            rf"node {FIRST_ID + 1} cannot report(.|\n)*archive",
        ),
        # Flower answers for it.
        (
            gone(DeploymentGrid(make_app(), range(2), 2)),
            RunError,
            f"node {FIRST_ID} cannot report.*Unavailable",
        ),
        (
            DeploymentGrid(make_app(), [0, 1, 0], 2),
            ConfigurationError,
            f"node {FIRST_ID}, node {FIRST_ID + 2} all have",
        ),
        (DeploymentGrid(make_app(), [0, 5], 2), ConfigurationError, "is 5; expected 0 to 1"),
        (DeploymentGrid(make_app(code="x"), [0, 1], 2), ConfigurationError, "different code"),
        (
            DeploymentGrid(make_app(), range(4), 4),
            ConfigurationError,
            "clients is 2, but there are 4",
        ),
    ],
)
def test_nodes_that_stay_as_they_are_are_refused_by_name(
    grid: DeploymentGrid, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said) as caught:
        discover(grid, 0 if "100000" in said else 2, timeout=0.1, poll=0.01)
    assert len(str(caught.value)) < 1000
    assert len(queries(grid)) == len(set(queries(grid)))


def test_a_node_that_does_not_speak_the_wire_format_ends_the_wait_at_once() -> None:
    grid = DeploymentGrid(make_app(), range(2), 2)
    answer = grid._answer

    def of_another_version(message: Message) -> Message:
        reply = answer(message)
        if message.metadata.dst_node_id == FIRST_ID + 1:
            reply.content["config"]["wire-format"] = 99  # type: ignore[index]
        return reply

    grid._answer = of_another_version  # type: ignore[method-assign]
    with pytest.raises(ConfigurationError, match="a node speaks wire-format 99"):
        discover(grid, 2, timeout=100.0, poll=0.01)


class Restarting(DeploymentGrid):
    """A grid that notices after some looks that a node has been replaced."""

    looks = 0

    def get_node_ids(self) -> Any:
        self.looks += 1
        if self.looks == 5:
            self.kill(FIRST_ID)
        return super().get_node_ids()


def test_a_duplicate_may_be_a_node_that_is_not_known_to_be_gone() -> None:
    grid = Restarting(make_app(), [0, 1, 0], 2)
    assert discover(grid, 2, timeout=20.0, poll=0.001).nodes == {0: FIRST_ID + 2, 1: FIRST_ID + 1}


def make(count: int = 3, app: ClientApp | None = None) -> tuple[DeploymentGrid, Federation]:
    grid = DeploymentGrid(app or make_app(), range(count), count)
    federation = discover(grid, count, timeout=10.0, poll=0.001)
    grid.asked.clear()
    return grid, federation


def test_a_run_goes_on_without_a_lost_node_and_with_the_one_that_comes_back() -> None:
    def train(task: TrainTask, received: Posterior) -> Any:
        from small_federation import shifted

        if (task.server_round, task.partition_id) == (2, 0):
            grid.kill(FIRST_ID + 1, noticed=False)
        return shifted(task, received)

    grid = DeploymentGrid(make_app(train), range(3), 3)
    rounds: list[Round] = []

    def on_round(finished: Round) -> None:
        rounds.append(finished)
        if finished.number == 2:
            grid.dead.clear()  # it comes back under its id

    said: list[str] = []
    strategy = strategies.Conflation(
        **arguments(
            weighting=weightings.create("equal"),
            partition=[None] * 3,
            on_round=on_round,
            on_warning=said.append,
        )
    )
    strategy.start(grid, posterior_to_arrays(start()), num_rounds=4)
    counts = [(r.metrics["clients"], r.metrics["failures"]) for r in rounds]
    assert counts == [(3, 0), (2, 1), (3, 0), (3, 0)]
    assert said == ["round 2, client 1: failed: Error: Node Unavailable"]
