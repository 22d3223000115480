"""What a run says when what a client kept is lost, and that whoever does it gets its result."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from clients_in_numpy import numpy_app
from flwr.app import Error

from bfl.configuration import resolve
from bfl.configuration.sources import read_run_config
from bfl.engine.flower import new_run
from bfl.engine.run import EngineRun
from bfl.engine.serial import SerialGrid
from bfl.errors import LostStateError, RunError
from bfl.experiments.results.run_folder import RunFolder
from bfl.federation.wire import RUN_CANNOT_GO_ON, TrainTask
from strategies.application.run import run_federation

GONE = "client 1: what it kept in round 1 is gone"
CLIENTS = 2


def run(values: Any, threads: int | None = None, *, code: int = RUN_CANNOT_GO_ON) -> RunFolder:
    """Make a run whose second client loses what it keeps once it has a file of that name."""

    def failure(task: TrainTask) -> Error | None:
        lost, at_once = (Path(task.run_folder, name).exists() for name in ("lost", "at-once"))
        gone = (at_once or (lost and task.server_round > 1)) and task.partition_id == 1
        return Error(code=code, reason=GONE) if gone else None

    engine_run = EngineRun()
    engine_run.client_threads = threads
    # As simulated nodes, which look into the run's folder.
    app = numpy_app(CLIENTS, failure, keeps_state=True, noise_anew=False)
    grid = SerialGrid(app, CLIENTS, new_run({}), {}, engine_run)
    return run_federation(grid, resolve(values))


@pytest.fixture
def values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    # Drawn figures take seconds.
    monkeypatch.setattr("strategies.application.final_evaluation.draw_all", lambda folder: [])
    return {
        "output-dir": str(tmp_path),
        "name": "first",
        "clients": CLIENTS,
        "rounds": 2,
        "optimizer-state": "keep",
        "model": "mlp",
        "test-examples": 20,
        "evaluate-every": 0,
        "mc-samples": 1,
        "min-clients": 2.0,
        "round-retries": 0,
    }


def lose(values: dict[str, Any]) -> Path:
    folder = Path(values["output-dir"], values["name"])
    folder.mkdir()
    (folder / "lost").touch()
    return folder


def test_who_does_what_a_lost_state_advises_gets_the_runs_result(values: dict[str, Any]) -> None:
    whole = run({**values, "name": "whole"})
    folder = lose(values)
    for resume in (False, True):  # going on fails as it did before
        with pytest.raises(LostStateError) as caught:
            run({**values, "resume": resume})
        said = str(caught.value)
        assert said.startswith(GONE)
        assert "--resume" not in said
        assert "resume=true" not in said
    advised = re.search(r"under another name, with --run-config (\S+) --name NAME, or", said)
    assert advised
    again = run({**read_run_config([advised[1]]), "name": "again"})
    assert f"when {folder} has been removed, by the command that began it" in said
    shutil.rmtree(folder)
    digests = [found.rounds()[-1]["posterior-sha256"] for found in (whole, again, run(values))]
    assert digests == [digests[0]] * 3


def test_a_run_that_fails_and_has_lost_nothing_says_how_to_go_on(values: dict[str, Any]) -> None:
    folder = lose(values)
    with pytest.raises(RunError, match=f"go on from there with --resume {folder},"):
        run(values, code=2)
    with pytest.raises(RunError, match=f"--resume {folder} --backend serial,"):
        run({**values, "resume": True}, code=2, threads=1)
    (folder / "lost").unlink()
    assert len(run({**values, "resume": True}).rounds()) == 2
