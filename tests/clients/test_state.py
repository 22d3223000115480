"""What a client keeps: by round, in a folder of its own, for nobody else on its machine."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from bfl.errors import ConfigurationError, LostStateError, RunError, SharedFolderError
from bfl.federation.wire import TrainTask
from clients.node import Node
from clients.state import ClientState, client_state


def make_context(**node: Any) -> Context:
    return Context(run_id=1, node_id=1, node_config=node, state=RecordDict(), run_config={})


def make_task(run_folder: str = "", run_key: str = "") -> TrainTask:
    return TrainTask(
        server_round=1,
        partition_id=7,
        configuration="{}",
        num_classes=10,
        examples=None,
        run_folder=run_folder,
        run_key=run_key,
    )


def task_of(server_round: int, pooled_round: int) -> TrainTask:
    return TrainTask(server_round, 7, "{}", 10, pooled_round=pooled_round)


@pytest.fixture
def state(tmp_path: Path) -> ClientState:
    return ClientState(tmp_path / "c")


def found(state: ClientState, pooled_round: int) -> list[float]:
    return state.restore(task_of(pooled_round + 1, pooled_round))["value"].tolist()


def test_what_is_kept_is_found_by_round_and_a_damaged_one_is_not_replaced(
    state: ClientState, tmp_path: Path
) -> None:
    assert state.restore(task_of(1, 0)) == {}
    for number in (1, 2, 4):  # the client took no part in round 3
        state.save(number, {"value": np.array([number, 0.5])})
    assert found(state, 4) == [4, 0.5]
    state.save(4, {"value": np.array([44.0])})  # round 4 is made again
    assert found(state, 4) == [44.0]
    [last] = (tmp_path / "c").glob("round-000004*")
    last.write_bytes(last.read_bytes()[:-1])
    with pytest.raises(LostStateError, match="round-000004"):
        found(state, 4)
    assert found(state, 2) == [2, 0.5]


def test_what_the_server_never_pooled_is_dropped(state: ClientState) -> None:
    state.save(2, ARRAYS)
    for lost in (3, 5, 6, 8, 9, 11):  # many rounds whose replies never arrived
        state.restore(task_of(lost, 2))
        state.save(lost, {"a": np.array([float(lost)])})
    state.restore(task_of(12, 2))
    for lost in (3, 5, 6, 8, 9, 11):
        with pytest.raises(LostStateError, match=f"client 7: what it kept in round {lost} is gone"):
            state.restore(task_of(lost + 1, lost))
    assert state.restore(task_of(12, 0)) == {}  # and the run that begins again has nothing
    with pytest.raises(LostStateError):
        state.restore(task_of(12, 2))


def test_a_task_that_comes_late_leaves_what_a_later_one_has_kept(state: ClientState) -> None:
    state.save(2, ARRAYS)
    state.restore(task_of(4, 2))
    state.save(4, ARRAYS)
    state.restore(task_of(3, 2))  # round 3's task, which the server has given up
    state.save(3, ARRAYS)
    assert state.restore(task_of(5, 4))


ARRAYS = {"a": np.ones(2)}
KEY, OTHER = "0123456789abcdef" * 2, "f" * 32


def store(task: TrainTask, context: Context | None = None, **config: Any) -> ClientState:
    context = context or make_context(**{"partition-id": 7, "num-partitions": 9, **config})
    return client_state(context, Node.of(context), task)


def run_folder(path: Path, key: str = KEY) -> str:
    path.mkdir()
    (path / "run-key").write_text(f"{key}\n", encoding="ascii")
    return str(path)


def test_a_supernode_files_its_states_by_run(tmp_path: Path) -> None:
    """A second run, also one of the same name, takes up nothing of the first."""
    config = {"state-dir": str(tmp_path)}
    store(make_task("/elsewhere", KEY), **config).save(4, ARRAYS)
    with pytest.raises(LostStateError):
        store(make_task("/elsewhere", OTHER), **config).restore(task_of(5, 4))
    assert store(make_task("/moved", KEY), **config).restore(task_of(5, 4))["a"].tolist() == [1, 1]
    assert [path.name for path in tmp_path.iterdir()] == [f"run-{KEY}"]


def test_nobody_else_on_a_nodes_machine_reads_what_its_client_keeps(tmp_path: Path) -> None:
    where = tmp_path / "made" / "on demand"
    kept = store(make_task("/elsewhere", KEY), **{"state-dir": str(where)})
    for server_round in (1, 2):
        kept.save(server_round, ARRAYS)
    folder = where / f"run-{KEY}" / "client-000007"
    assert [path.stat().st_mode & 0o777 for path in (folder.parent, folder)] == [0o700, 0o700]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    kept = store(make_task("/elsewhere", KEY), **{"state-dir": str(tmp_path / "file")})
    with pytest.raises(RunError, match=f"cannot write .*run-{KEY}"):
        kept.save(1, ARRAYS)


def test_a_server_does_not_choose_where_a_supernode_writes(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run")
    context = make_context(**{"partition-id": 7, "num-partitions": 9})
    with pytest.raises(ConfigurationError, match="no place for it; allowed: state-dir"):
        store(make_task(run, KEY), context)
    with pytest.raises(ConfigurationError, match=r"the run's key is '\.\./\.\./x'"):
        store(make_task(run, "../../x"), **{"state-dir": str(tmp_path)})


def test_without_a_key_the_run_is_flowers(tmp_path: Path) -> None:
    store(make_task(), **{"state-dir": str(tmp_path)}).save(1, ARRAYS)
    assert [path.name for path in tmp_path.iterdir()] == ["run-1"]


def test_a_simulated_client_keeps_its_state_in_the_runs_folder(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run")
    store(make_task(run, KEY), simulation=True).save(1, ARRAYS)
    assert (tmp_path / "run" / "clients" / "client-000007").is_dir()


@pytest.mark.parametrize("there", ["nothing", "another run", "no key"])
def test_a_host_that_does_not_share_the_runs_folder_ends_the_run(
    there: str, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    if there != "nothing":
        run_folder(folder, OTHER)
    if there == "no key":
        (folder / "run-key").unlink()
    with pytest.raises(SharedFolderError, match="all of them share at one path"):
        store(make_task(str(folder), KEY), simulation=True)
    assert not (folder / "clients").exists()
