from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from bfl.errors import ConfigurationError, LostStateError, RunError, SharedFolderError
from bfl.federation.wire import TrainTask
from clients.node import Node
from clients.state import KEPT, ClientState, StateInContext, StateInFolder, client_state


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


@pytest.fixture(params=["folder", "context"])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> ClientState:
    if request.param == "folder":
        return StateInFolder(tmp_path / "c")
    return StateInContext(make_context(), "run-1", "client-7")


def test_what_is_kept_is_found_by_round(state: ClientState) -> None:
    assert state.take_up(0, 1) is None
    for number in (1, 2, 4):  # the client took no part in round 3
        state.save(number, {"value": np.array([number, 0.5])})
    kept = state.take_up(4, 5)
    assert kept is not None
    assert kept["value"].tolist() == [4, 0.5]
    state.save(4, {"value": np.array([44.0])})  # round 4 is made again
    kept = state.take_up(4, 5)
    assert kept is not None
    assert kept["value"].tolist() == [44.0]


def test_what_the_server_never_pooled_is_dropped(state: ClientState) -> None:
    state.save(2, ARRAYS)
    for lost in (3, 5, 6, 8, 9, 11):  # many rounds whose replies never arrived
        assert state.take_up(2, lost) is not None
        state.save(lost, {"a": np.array([float(lost)])})
    assert state.take_up(2, 12) is not None
    for lost in (3, 5, 6, 8, 9, 11):
        assert state.take_up(lost, lost + 1) is None
    assert state.take_up(0, 12) is None  # and the run that begins again has nothing
    assert state.take_up(2, 12) is None


def test_a_task_that_comes_late_leaves_what_a_later_one_has_kept(state: ClientState) -> None:
    state.save(2, ARRAYS)
    state.take_up(2, 4)
    state.save(4, ARRAYS)
    state.take_up(2, 3)  # round 3's task, which the server has given up
    state.save(3, ARRAYS)
    assert state.take_up(4, 5) is not None


def test_a_damaged_state_is_not_replaced_by_an_older_one(tmp_path: Path) -> None:
    state = StateInFolder(tmp_path / "c")
    for number in (1, 2, 3):
        state.save(number, {"value": np.array([number])})
    [last] = (tmp_path / "c").glob("round-000003*")
    last.write_bytes(last.read_bytes()[:-1])
    with pytest.raises(LostStateError, match="round-000003"):
        state.take_up(3, 4)
    kept = state.take_up(2, 3)
    assert kept is not None
    assert kept["value"].tolist() == [2]


def test_a_context_keeps_the_last_rounds_alone_also_low_ones_beside_higher_ones() -> None:
    context = make_context()
    state = StateInContext(context, "run-1", "client-7")
    for number in (6, 7, 8, 1, 2, 3, 4):
        state.save(number, {"value": np.array([number])})
        assert len(context.state) <= KEPT
        kept = state.take_up(number, number + 1)
        assert kept is not None
        assert kept["value"].tolist() == [number]


def test_contexts_are_shared_by_runs_and_clients_and_states_are_not() -> None:
    context = make_context()
    mine = StateInContext(context, "run-1", "client-7")
    others = [StateInContext(context, "run-1", "client-8"), StateInContext(context, "run-2", "x")]
    others[1].save(3, {"value": np.zeros(1)})
    others[0].save(3, {"value": np.zeros(1)})
    assert len(context.state) == 1  # the other run is over
    assert mine.take_up(3, 5) is None
    mine.save(4, {"value": np.ones(1)})
    assert (others[0].take_up(3, 5) or {})["value"].tolist() == [0]
    assert (mine.take_up(4, 5) or {})["value"].tolist() == [1]


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
    assert store(make_task("/elsewhere", OTHER), **config).take_up(4, 5) is None
    assert store(make_task("/moved", KEY), **config).take_up(4, 5)["a"].tolist() == [1, 1]
    assert [path.name for path in tmp_path.iterdir()] == [f"run-{KEY}"]


def test_nobody_else_on_a_nodes_machine_reads_what_its_client_keeps(tmp_path: Path) -> None:
    where = tmp_path / "made" / "on demand"
    kept = store(make_task("/elsewhere", KEY), **{"state-dir": str(where)})
    for server_round in (1, 2):
        kept.save(server_round, ARRAYS)
    folder = where / f"run-{KEY}" / "client-000007"
    folder.parent.chmod(0o755)  # as an older version made it
    kept.save(2, ARRAYS)
    assert [path.stat().st_mode & 0o777 for path in (folder.parent, folder)] == [0o700, 0o700]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert kept.take_up(2, 3)["a"].tolist() == [1, 1]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    kept = store(make_task("/elsewhere", KEY), **{"state-dir": str(tmp_path / "file")})
    with pytest.raises(RunError, match=f"cannot write .*run-{KEY}"):
        kept.save(1, ARRAYS)


def test_a_server_does_not_choose_where_a_supernode_writes(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run")
    context = make_context(**{"partition-id": 7, "num-partitions": 9})
    store(make_task(run, KEY), context).save(1, ARRAYS)
    assert len(context.state) == 1
    assert not (tmp_path / "run" / "clients").exists()
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


def test_a_simulation_without_a_folder_keeps_states_with_flower() -> None:
    """A ServerApp of the user's own need not have one."""
    assert isinstance(store(make_task(), simulation=True), StateInContext)
