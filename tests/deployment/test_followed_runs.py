"""A run that Flower's command starts, followed to its end, with a stand-in for that command."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import tomllib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from federation_folders import HOSTS, NOW
from flower_processes import ROOT, wait_for

from bfl import printing
from bfl.commands.main import main
from bfl.configuration.settings import parse_pairs
from bfl.deployment import processes, run, setup
from bfl.deployment.run import follow_run
from bfl.deployment.settings import ServerSettings
from bfl.errors import RunError
from bfl.experiments.run.simulation import DEFAULT_CLOSING
from strategies.application.run import FederationApp

UNAVAILABLE = json.dumps({"success": False, "error-message": "Connection is unavailable."})
COMPLETED = "finished:completed"

PLUGIN = """
from pydantic import Field
from bfl.aggregation.weightings import Equal, weightings


@weightings.register("own")
class Own(Equal):
    own_power: float = Field(0.5, description="power")
    own_word: str = Field("", description="word")
"""
FLWR = """#!/bin/sh
# The n-th question for the run's status is answered by the n-th line, and by the last from then on.
cd "$FAKE_FOLDER"
if [ "$1" = run ]; then
    while [ "$1" != --run-config ]; do shift; done
    cp "$2" given.toml
    [ -z "$FAKE_LATE" ] || { echo "Loading"; sleep "$FAKE_LATE"; }
    [ -z "$FAKE_RUN" ] || echo "Successfully started run $FAKE_RUN"
    [ -z "$FAKE_RUN" ] || echo "[   0.1 s] round 1/2: 0 of 2 clients have replied ..."
    [ -z "$FAKE_RUN" ] || echo "[   0.2 s] results are in $FAKE_FOLDER/runs/first"
    [ -z "$FAKE_HANGS" ] || sleep 60
    exit "$FAKE_STREAM_STATUS"
fi
[ "$1" != stop ] || { echo "$@" >>stopped; exec sleep "${FAKE_HANGS:-0}"; }
echo "$@" >>asked
number=$(wc -l <asked)
last=$(wc -l <answers)
[ "$number" -le "$last" ] || number=$last
sed -n "${number}p" answers
"""
CALL = """
import os, sys
from pathlib import Path
from bfl.commands.terminal import exits_with_status
from bfl.deployment.run import follow_run
words = (sys.argv[1], ".", "c", os.environ, {}, Path(sys.argv[2]))
sys.exit(exits_with_status(lambda _: follow_run(*words))())
"""


def status(text: str, details: str = "") -> str:
    return json.dumps({"success": True, "runs": [{"status": text, "status-details": details}]})


@pytest.fixture
def flwr(tmp_path: Path) -> str:
    """Return a command in the place of Flower's."""
    path = tmp_path / "flwr"
    path.write_text(FLWR, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def environment(folder: Path, **more: str) -> dict[str, str]:
    given = {"FAKE_FOLDER": str(folder), "FAKE_STREAM_STATUS": "0", "FAKE_RUN": "42", **more}
    return {**os.environ, "FAKE_LATE": "", "FAKE_HANGS": "", **given}


@pytest.mark.parametrize(
    ("by", "code", "late"), [(signal.SIGTERM, 143, ""), (signal.SIGINT, 130, "0.3")]
)
def test_a_signal_stops_the_run(by: int, code: int, late: str, flwr: str, tmp_path: Path) -> None:
    """It may be sent in the moment before flwr says that it has started the run; the SuperLink
    need not answer."""
    with subprocess.Popen(
        [sys.executable, "-c", CALL, flwr, str(tmp_path / "run.log")],
        env=environment(tmp_path, FAKE_HANGS="20", FAKE_LATE=late, PYTHONPATH=str(ROOT)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        log = tmp_path / "run.log"
        wait_for(lambda: log.is_file() and log.stat().st_size, 30)
        process.send_signal(by)
        printed, _ = process.communicate(timeout=15)
    assert process.returncode == code, printed
    wait_for((tmp_path / "stopped").exists, 5)
    assert (tmp_path / "stopped").read_text().split() == ["stop", "42", "c"]


RUNNING = status("running")


@pytest.mark.parametrize(
    ("answers", "more", "failure", "asked"),
    [
        ([RUNNING, status(COMPLETED)], {}, "", 2),
        # The SuperLink may be away for a while; what counts is how the run ends.
        ([UNAVAILABLE, RUNNING, "", RUNNING, status(COMPLETED)], {"STREAM_STATUS": "1"}, "", 5),
        ([status("finished:failed", "KeyError: 1")], {}, "run 42 .*KeyError: 1", 1),
        ([UNAVAILABLE], {"STREAM_STATUS": "1"}, "not answered", None),
        ([], {"RUN": ""}, "not started", 0),
    ],
)
def test_a_run_ends_as_the_superlink_says(
    answers: list[str],
    more: dict[str, str],
    failure: str,
    asked: int | None,
    flwr: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its lines have this command's clock, and paths that hold where it was given; what it waits
    for is said by this command, whenever that would be silent."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(printing, "_began", time.monotonic() - 1000.0)
    monkeypatch.setattr(run, "LOOK_INTERVAL", 0.01)
    monkeypatch.setattr(run, "PATIENCE", 1.0)
    (tmp_path / "answers").write_text("".join(f"{a}\n" for a in answers), encoding="utf-8")
    ended: Any = pytest.raises(RunError, match=failure) if failure else nullcontext()
    with ended:
        given = environment(tmp_path, **{f"FAKE_{name}": value for name, value in more.items()})
        follow_run(flwr, Path(), "c", given, {"rounds": 1}, tmp_path / "run.log")
    questions = tmp_path / "asked"
    times = len(questions.read_text().splitlines()) if questions.exists() else 0
    assert asked is None or times == asked
    printed = capsys.readouterr().out
    assert printed.count("goes on") == (asked == 5)
    first = re.match(r"\[100\d\.\d s\] results are in runs/first\n", printed)
    assert bool(first) == (asked != 0)
    if times:
        assert questions.read_text().splitlines()[0] == "ls c --run-id 42 --format json"


def test_a_part_of_a_run_has_no_lines_of_its_own(
    flwr: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "answers").write_text(f"{status(COMPLETED)}\n", encoding="utf-8")
    log = tmp_path / "run.log"
    follow_run(flwr, Path(), "c", environment(tmp_path), {"rounds": 1}, log, "baseline")
    assert capsys.readouterr().out == ""
    assert printing.described() == "baseline: results are in " + str(tmp_path / "runs/first")


def test_what_holds_the_port_is_no_server_without_its_state(tmp_path: Path) -> None:
    """Else flwr would make a folder that others may enter, in which no server starts later."""
    home = tmp_path / "state" / "flower"
    with socket.create_server(("127.0.0.1", 0)) as other:
        with pytest.raises(RunError, match="superlink-port"):
            run.wait_for_server(other.getsockname()[1], home)
        assert not home.parent.exists()
        home.mkdir(parents=True)
        run.wait_for_server(other.getsockname()[1], home)


def test_a_run_is_given_as_flower_takes_it(
    flwr: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Paths that hold in Flower's folder, and keys that no pyproject.toml declares in one text;
    how a failed run goes on is said where it has begun."""
    server = setup.init(tmp_path / "made", ServerSettings(hosts=HOSTS), "1", NOW).server
    monkeypatch.setattr(run, "wait_for_server", lambda *_: None)
    monkeypatch.setattr(FederationApp, "check_before_start", lambda *_, **__: [])
    monkeypatch.setattr(processes, "command", lambda name: flwr)
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(PLUGIN, encoding="utf-8")
    (server / "state").mkdir()
    (tmp_path / "other.npz").touch()
    (tmp_path / "answers").write_text(status("finished:failed", "KeyError: 1") + "\n")
    words = ["federation", "run", str(server), "--run-config"]
    config = 'plugins="mine.py" weighting="own" own-power=2.0 own-word="a b" rounds=3 name="mine"'
    config += ' data-dir="here" initial-posterior="first.npz" server-data="npz:other.npz"'
    config += ' ood-dataset="rotated+npz:other.npz"'
    for begun in (False, True):
        if begun:
            (tmp_path / "runs" / "mine").mkdir(parents=True)
            (tmp_path / "runs" / "mine" / "config.toml").touch()
        assert main([*words, config]) == 1
        assert ('name="mine" resume=true' in capsys.readouterr().err) == begun
    given = tomllib.loads((tmp_path / "given.toml").read_text(encoding="utf-8"))
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert given.keys() <= table["tool"]["flwr"]["app"]["config"].keys()
    assert parse_pairs(given["plugin-settings"]) == {"own-power": 2.0, "own-word": "a b"}
    paths = {"plugins": "mine.py", "data-dir": "here", "initial-posterior": "first.npz"}
    for key, name in paths.items():
        assert given[key] == str(tmp_path / name)
    assert given["closing"] == DEFAULT_CLOSING
    assert given["server-data"] == f"npz:{tmp_path / 'other.npz'}"
    assert given["ood-dataset"] == f"rotated+npz:{tmp_path / 'other.npz'}"
    assert (given["output-dir"], given["name"]) == (str(tmp_path / "runs"), "mine")
    assert (given["weighting"], given["rounds"]) == ("own", 3)
    assert main([*words, 'name="a/b" resume=true']) == 2
    assert main([*words[:2], str(tmp_path), *words[3:], "rounds=1"]) == 2
