"""The exit status of ``scripts/flwr-run.sh``, with a stand-in for Flower's command."""

import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from bfl.configuration.pairs import parse_pairs

ROOT = Path(__file__).resolve().parent.parent.parent
UNAVAILABLE = json.dumps({"success": False, "error-message": "Connection is unavailable."})

PLUGIN = """
from pydantic import Field
from bfl.aggregation.weightings.base import weightings
from bfl.aggregation.weightings.counts import Equal


@weightings.register("own")
class Own(Equal):
    own_power: float = Field(0.5, description="power")
    own_word: str = Field("", description="word")
"""
FLWR = """#!/bin/sh
# The n-th question for the run's status is answered by the n-th line, and by the last from then on.
if [ "$1" = run ]; then
    while [ "$1" != --run-config ]; do shift; done
    cp "$2" "$FAKE_FOLDER/given.toml"
    [ -z "$FAKE_LATE" ] || { echo "Loading"; sleep "$FAKE_LATE"; }
    [ -z "$FAKE_RUN" ] || echo "Successfully started run $FAKE_RUN"
    [ -z "$FAKE_HANGS" ] || sleep 60
    exit "$FAKE_STREAM_STATUS"
fi
if [ "$1" = stop ]; then
    echo "$@" >>"$FAKE_FOLDER/stopped"
    [ "$FAKE_HANGS" = 15 ] && exec sleep 100
    exit
fi
echo "$@" >>"$FAKE_FOLDER/asked"
number=$(wc -l <"$FAKE_FOLDER/asked")
last=$(wc -l <"$FAKE_FOLDER/answers")
[ "$number" -le "$last" ] || number=$last
sed -n "${number}p" "$FAKE_FOLDER/answers"
"""


def status(text: str, details: str = "") -> str:
    return json.dumps({"success": True, "runs": [{"status": text, "status-details": details}]})


def run(
    folder: Path,
    answers: list[str],
    *,
    streamed: int = 0,
    config: str = "rounds=1",
    run_id: str = "42",
    patience: int = 60,
    ended_by: int = 0,
    late: str = "",
) -> tuple[int, str, int]:
    """Return the exit status, what is printed, and how often the run's status was asked for."""
    commands = folder / "environment" / "bin"
    commands.mkdir(parents=True, exist_ok=True)
    python = f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'
    for name, text in (("flwr", FLWR), ("python", python)):
        (commands / name).write_text(text, encoding="utf-8")
        (commands / name).chmod(0o755)
    (folder / "answers").write_text("".join(f"{a}\n" for a in answers), encoding="utf-8")
    (folder / "asked").touch()
    with subprocess.Popen(
        [str(ROOT / "scripts" / "flwr-run.sh"), "remote", "--run-config", config],
        env={
            **os.environ,
            "BFL_PYTHON_ENV": str(commands.parent),
            "FLWR_HOME": str(folder),
            "FAKE_FOLDER": str(folder),
            "FAKE_STREAM_STATUS": str(streamed),
            "FAKE_HANGS": str(int(ended_by) or ""),
            "FAKE_LATE": late,
            "FAKE_RUN": run_id,
            "BFL_SUPERLINK_PATIENCE": str(patience),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        if ended_by:
            process.stdout.readline()
            process.send_signal(ended_by)
        printed, _ = process.communicate(timeout=60)
    return process.returncode, printed, len((folder / "asked").read_text().splitlines())


@pytest.mark.parametrize(
    ("by", "code", "late"),
    [(signal.SIGTERM, 143, ""), (signal.SIGINT, 130, "0.3")],
)
def test_a_signal_stops_the_run(by: int, code: int, late: str, tmp_path: Path) -> None:
    """A SuperLink that is not the script's own would go on with it, or does not answer.

    It may be sent in the moment before flwr says that it has started the run.
    """
    returned, printed, _ = run(tmp_path, [], ended_by=by, late=late)
    assert returned == code, printed
    assert (tmp_path / "stopped").read_text().split() == ["stop", "42", "remote"]


def test_a_completed_run(tmp_path: Path) -> None:
    code, printed, asked = run(tmp_path, [status("running"), status("finished:completed")])
    assert (code, asked) == (0, 2), printed
    assert (tmp_path / "asked").read_text().splitlines()[0] == "ls remote --run-id 42 --format json"


def test_a_broken_stream_does_not_end_the_run(tmp_path: Path) -> None:
    """The SuperLink may be away for a while; what counts is how the run ends."""
    answers = [UNAVAILABLE, status("running"), "", status("running"), status("finished:completed")]
    returned, printed, asked = run(tmp_path, answers, streamed=1)
    assert (returned, asked) == (0, 5), printed
    assert printed.count("the stream of the log has ended (status 1), and run 42 goes on") == 1


def test_a_stream_that_ends_well_does_not_mean_that_the_run_has(tmp_path: Path) -> None:
    """How it goes on is said where it has begun: not after a refusal."""
    failed = [status("finished:failed", "KeyError: 1")]
    for begun in (False, True):
        if begun:
            (tmp_path / "mine").mkdir()
            (tmp_path / "mine" / "config.toml").touch()
        code, printed, _ = run(tmp_path, failed, config=f'output-dir="{tmp_path}" name="mine"')
        assert code == 1
        assert "failed: run 42 is finished:failed (KeyError: 1)" in printed
        assert ('name="mine" resume=true' in printed.splitlines()[-1]) == begun


@pytest.mark.parametrize(
    ("given", "code", "asked"),
    [
        ({"answers": [UNAVAILABLE], "streamed": 1, "patience": 2}, 1, None),
        ({"answers": [], "streamed": 1, "run_id": ""}, 1, 0),
        ({"answers": [], "config": 'name="a/b" resume=true'}, 2, 0),
    ],
    ids=["a SuperLink that stays away", "flwr has not started the run", "a refused value"],
)
def test_what_is_no_run_ends_with_a_status(
    given: dict[str, Any], code: int, asked: int | None, tmp_path: Path
) -> None:
    returned, printed, times = run(tmp_path, **given)
    assert returned == code, printed
    assert asked is None or times == asked
    assert ("refused: " if code == 2 else "failed: ") in printed


def test_plugins_and_their_settings_are_given_as_flower_takes_them(tmp_path: Path) -> None:
    """Paths that hold in Flower's folder, and keys that no pyproject.toml declares in one text."""
    (tmp_path / "mine.py").write_text(PLUGIN, encoding="utf-8")
    named = os.path.relpath(tmp_path / "mine.py")
    config = f'plugins="{named}" weighting="own" own-power=2.0 own-word="a b" rounds=3'
    code, printed, _ = run(tmp_path, [status("finished:completed")], config=config)
    assert code == 0, printed
    given = tomllib.loads((tmp_path / "given.toml").read_text(encoding="utf-8"))
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert given.keys() <= table["tool"]["flwr"]["app"]["config"].keys()
    assert parse_pairs(given["plugin-settings"]) == {"own-power": 2.0, "own-word": "a b"}
    assert Path(given["plugins"]).is_absolute()
    assert Path(given["plugins"]).resolve() == (tmp_path / "mine.py").resolve()
    assert (given["weighting"], given["rounds"]) == ("own", 3)
