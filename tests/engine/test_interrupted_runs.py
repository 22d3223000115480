"""Runs on Ray that are told to end, in a terminal: at once, with nothing lost and nothing left."""

import re
import signal
import sys
from pathlib import Path

import pytest
from installed import executable
from runs_in_process import digests

from bfl.configuration.settings import parse_pairs
from bfl.engine.flower.app import FlowerApp, run_serially
from bfl.experiments.results.run_folder import RunFolder

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "commands"))

from terminal import Terminal  # noqa: E402

pytestmark = pytest.mark.slow

SETTINGS = (
    'model="resnet8" inference="deterministic" strategy="nwa" train-examples=300 '
    'test-examples=100 rounds=4 local-epochs=1 figures="none" closing="none"'
)


def simulation(folder: Path, *more: str) -> Terminal:
    command = [executable("flower-simulation"), "--app", str(ROOT), "--num-supernodes", "2"]
    return Terminal([*command, *more], folder, {"BFL_CPUS": "1"})


@pytest.mark.long
def test_ctrl_c_in_a_round_loses_nothing(tmp_path: Path) -> None:
    terminal = simulation(tmp_path, "--run-config", f'{SETTINGS} name="run"')
    terminal.wait_for("accuracy 0.")  # of a round that has ended
    assert terminal.end(signal.SIGINT, again=True) == 130
    assert "Traceback" not in terminal.printed
    # Ray itself may say that the task of an actor that was ended has failed.
    ours = re.sub(r"ClientAppActor\.run failed\.", "", terminal.printed.replace("\r\n", ""))
    assert "failed" not in ours
    assert f"--resume {tmp_path / 'runs' / 'run'}" in terminal.printed.replace("\r\n", "")
    before = digests(RunFolder(tmp_path / "runs" / "run"))
    assert 1 <= len(before) < 4
    values = parse_pairs(f'{SETTINGS} output-dir="{tmp_path}" name="straight" clients=2')
    run_serially(FlowerApp.read(ROOT), values, 2, {})
    again = parse_pairs(f'{SETTINGS} output-dir="{tmp_path / "runs"}" name="run" clients=2')
    run_serially(FlowerApp.read(ROOT), {**again, "resume": True}, 2, {})
    straight = digests(RunFolder(tmp_path / "straight"))
    assert before == straight[: len(before)]
    assert digests(RunFolder(tmp_path / "runs" / "run")) == straight


def test_sigterm_before_the_first_round(tmp_path: Path) -> None:
    terminal = simulation(tmp_path, "--run-config", f'{SETTINGS} name="run"')
    terminal.wait_for("digits, iid partition")
    assert terminal.end(signal.SIGTERM) == 143
    assert "Traceback" not in terminal.printed
    assert "SIGTERM" not in terminal.printed, "a dump of the stack"
    assert "nothing has been saved yet" in terminal.printed or "--resume" in terminal.printed
