from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from bfl.wire import TrainTask
from clients.state import KEPT, StateInContext, StateInFolder, client_state


def make_context(**node: Any) -> Context:
    return Context(run_id=1, node_id=1, node_config=node, state=RecordDict(), run_config={})


def make_task(run_folder: str = "") -> TrainTask:
    return TrainTask(
        server_round=1,
        partition_id=7,
        configuration="{}",
        num_classes=10,
        examples=None,
        run_folder=run_folder,
    )


@pytest.mark.parametrize("where", ["folder", "context"])
def test_what_is_kept_is_found_by_round(where: str, tmp_path: Path) -> None:
    state = StateInFolder(tmp_path / "c") if where == "folder" else StateInContext(make_context())
    assert state.load(before=1) == {}
    for number in (1, 2, 4, 5):  # the client took no part in round 3
        state.save(number, {"value": np.array([number, 0.5])})
    assert state.load(before=6)["value"].tolist() == [5, 0.5]
    assert state.load(before=4)["value"].tolist() == [2, 0.5]  # round 4 is made again
    assert state.load(before=2) == {}  # only the last few are kept
    state.save(4, {"value": np.array([44.0])})
    assert state.load(before=5)["value"].tolist() == [44.0]


def test_only_the_last_rounds_are_kept() -> None:
    context = make_context()
    state = StateInContext(context)
    for number in range(1, 10):
        state.save(number, {"value": np.zeros(1)})
    assert len(context.state) == KEPT


def test_where_a_client_keeps_its_state(tmp_path: Path) -> None:
    """In the node's folder, else in the run's if it is on this machine, else with Flower."""
    node, run = tmp_path / "node", tmp_path / "run"
    run.mkdir()
    arrays = {"a": np.ones(2)}
    client_state(make_context(**{"state-dir": str(node)}), make_task(str(run))).save(1, arrays)
    assert (node / "client-000007").is_dir()
    assert list(run.iterdir()) == []
    client_state(make_context(), make_task(str(run))).save(1, arrays)
    assert (run / "clients" / "client-000007").is_dir()
    elsewhere = tmp_path / "another machine's folder"
    context = make_context()
    client_state(context, make_task(str(elsewhere))).save(1, arrays)
    assert not elsewhere.exists()
    assert len(context.state) == 1
