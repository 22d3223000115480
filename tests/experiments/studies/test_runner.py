"""All runs are made, each by a process of its own: skipped, resumed, failed, interrupted."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_study import PUBLISHED, STUDY, bfl, write_study

import bfl as bfl_of_python
from bfl.errors import RunError
from bfl.experiments.studies.results import OpenedStudy, open_study
from bfl.experiments.studies.runner import make_study

FIRST, SECOND = "flipout-ws_iid_seed-0", "flipout-nwa_iid_seed-0"

# Without an import of bfl, which would take seconds.
FAKE = """
import json, os, re, signal, sys, time
from pathlib import Path
assert sys.argv[1:4] == ["run", "--backend", "serial"], sys.argv
_, pairs = [value for key, value in zip(sys.argv, sys.argv[1:]) if key == "--run-config"]
assert sys.argv[-1] == "--resume"
keys = dict(re.findall('([a-z-]+) = "([^"]*)"', pairs))
name = keys["name"]
assert keys["closing"] == "none"  # as the study's file names none
print("this is", name, flush=True)
with open(Path(__file__).with_suffix(".asked"), "a") as asked:
    asked.write(name + chr(10))
act = Path(__file__).with_suffix("." + name)
if act.exists():
    exec(act.read_text())
folder = Path(keys["output-dir"]) / name
(folder / "config.toml").write_text("rounds = 4")
(folder / "run.json").write_text("{}")
rounds = folder / "rounds.jsonl"
made = len(rounds.read_text().splitlines()) if rounds.exists() else 0
for number in range(made + 1, 5):
    with rounds.open("a") as lines:
        print(json.dumps({"round": number, "seconds": 1.0, "accuracy": number / 10}), file=lines)
    if act.exists():
        after_round(number)
(folder / "metrics.json").write_text('{"accuracy": 0.5, "negative-log-likelihood": 1.0}')
"""


class Fake:
    """A command in place of ``bfl``, which makes runs without training.

    What stands in the file of a run's name is executed when it begins.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "fake.py"
        self.path.write_text(FAKE, encoding="utf-8")
        self.file = write_study(folder / "files")
        (folder / "docs" / "results").mkdir(parents=True)  # as a checkout has; of no such study
        self.folder = folder

    @property
    def asked(self) -> list[str]:
        path = self.path.with_suffix(".asked")
        return path.read_text("utf-8").split() if path.exists() else []

    def acts(self, name: str, code: str) -> None:
        text = f"{code}\nafter_round = globals().get('after_round', lambda number: None)"
        self.path.with_suffix(f".{name}").write_text(text, encoding="utf-8")

    def opened(self, **options: Any) -> OpenedStudy:
        return open_study(self.file, output=self.folder / "out", **options)

    def make(self, **options: Any) -> None:
        command, backend = (sys.executable, str(self.path)), ("--backend", "serial")
        make_study(self.opened(**options), {}, backend=backend, command=command)


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path)


def test_each_run_is_made_once_in_a_process_of_its_own(fake: Fake, capsys: Any) -> None:
    fake.make(only=["seed-0"])
    names = [run.name for run in fake.opened().runs]
    assert fake.asked == names[:4]
    told = capsys.readouterr().out
    assert f"1/4 {FIRST}: accuracy 0.5000" in told
    assert "this is" not in told, "it is in the run's log"
    folder = fake.opened().folder
    assert f"this is {FIRST}" in (folder.runs / FIRST / "log.txt").read_text("utf-8")
    assert len(folder.read_frame()) == 4
    fake.make()
    assert fake.asked == names
    assert len(folder.read_frame()) == 8
    # Of files alone nothing is made again.
    shutil.rmtree(folder.runs)
    fake.make()
    assert fake.asked == names
    assert set(fake.opened().results.numbers("accuracy")) == {0.5}


def test_results_of_no_other_folder_are_written_where_none_is_named(fake: Fake) -> None:
    fake.make()
    made = fake.opened().folder.path
    made.rename(fake.folder / "docs" / "results" / made.name)
    fake.make(only=["ws_iid_seed-0"], anew=True)
    assert list(fake.opened().folder.read_frame().run) == [FIRST]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise SystemExit(1)", "status 1"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("print('failed: \\n  no luck\\n  others'); raise SystemExit(1)", "no luck"),
        ("raise SystemExit(0)", "status 0"),
    ],
)
def test_a_failure_is_recorded_and_the_others_go_on(code: str, reason: str, fake: Fake) -> None:
    fake.acts(SECOND, code)
    with pytest.raises(RunError, match=f"{SECOND}.*{reason}"):
        fake.make(only=["seed-0"])
    opened = fake.opened(only=["seed-0"])
    assert len(opened.results.frame) == 3
    assert opened.results.states == {SECOND: "failed"}
    log = (opened.folder.run(SECOND).path / "log.txt").read_text("utf-8")
    assert f"this is {SECOND}" in log
    assert reason in log.splitlines()[-1]
    fake.acts(SECOND, "")
    fake.make(only=["seed-0"])
    assert fake.asked.count(SECOND) == 2
    assert fake.asked.count(FIRST) == 1


def test_a_run_that_has_begun_goes_on(fake: Fake, capsys: Any) -> None:
    fake.acts(FIRST, "def after_round(number):\n    if number == 2: raise SystemExit(1)")
    with pytest.raises(RunError):
        fake.make(only=["ws_iid_seed-0"])
    assert fake.opened().results.states[FIRST] == "failed"
    (fake.opened().folder.runs / FIRST / "log.txt").unlink()
    assert fake.opened().results.states[FIRST] == "begun, round 2 of 4"
    fake.acts(FIRST, "")
    capsys.readouterr()
    fake.make(only=["ws_iid_seed-0"])
    assert "resumes after round 2 of 4" in capsys.readouterr().out
    assert [entry["round"] for entry in fake.opened().folder.run(FIRST).rounds()] == [1, 2, 3, 4]


def test_what_has_begun_under_other_keys_is_not_gone_on_with(fake: Fake) -> None:
    fake.acts(FIRST, "def after_round(number):\n    if number == 2: raise SystemExit(1)")
    with pytest.raises(RunError):
        fake.make(only=["ws_iid_seed-0"])
    write_study(fake.folder / "files", STUDY.replace("local-epochs = 2", "local-epochs = 3"))
    with pytest.raises(RunError, match="another name"):
        fake.make(only=["ws_iid_seed-0"])
    assert fake.asked == [FIRST]


INTERRUPTED = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from test_runner import Fake
fake = Fake.__new__(Fake)
fake.folder, fake.path, fake.file = map(Path, {places!r})
fake.make(only=["seed-0"])
"""


def test_an_interruption_reaches_the_run_and_ends_all(fake: Fake) -> None:
    marker = fake.folder / "interrupted"
    fake.acts(
        SECOND,
        "try:\n    print('ready', flush=True); time.sleep(60)\n"
        f"except KeyboardInterrupt:\n    Path({str(marker)!r}).touch(); raise",
    )
    places = (str(fake.folder), str(fake.path), str(fake.file))
    code = INTERRUPTED.format(tests=str(Path(__file__).parent), places=places)
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    log = fake.opened().folder.runs / SECOND / "log.txt"
    ends = time.monotonic() + 60
    while time.monotonic() < ends and not (log.exists() and "ready" in log.read_text("utf-8")):
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(30) != 0
    assert marker.exists()
    assert len(fake.opened().folder.read_frame()) == 1, "what is done is kept"


HEADS = '"hbfl"\nevaluated-by = "clients"\nshared = "convolutions"\nmodel = "mlp"'
CLAIM = '\n[[claims]]\nmetric = "accuracy"\nbetter = { rule = "WS" }\nworse = { rule = "NWA" }\n'
# What stands in the study's file, what in its place, and what the refusal names.
REFUSED = [
    ("rounds =", "round =", "'rounds'"),
    ('strategy = "nwa"', 'stratgy = "nwa"', "strategy"),
    ('"nwa"', '"nwaa"', "run flipout-nwa_iid_seed-0 and 3 more"),
    ('"nwa"', HEADS, "shared"),
    ("rounds =", 'dataset = "npz:x.npz"\nrounds =', "x.npz"),
    ('file = "published.csv"', 'file = "published.csv"' + CLAIM, "2 claims; 7 can"),
]
OPTIONS = [
    (["--backend-config", "{"], "JSON"),
    (["--only", "nothing"], "nothing"),
    (["--run-config", "rounds=3"], "rounds"),
    (["--run-config", "data-dri='x'"], "data-dir"),
]


@pytest.mark.parametrize(
    ("old", "new", "options", "named"),
    [(*case[:2], [], case[2]) for case in REFUSED] + [("", "", *case) for case in OPTIONS],
)
def test_bad_studies_and_options_are_refused_before_the_first_run(
    old: str, new: str, options: list[str], named: str, tmp_path: Path, capsys: Any
) -> None:
    path = write_study(tmp_path / "files", STUDY.replace(old, new) if old else STUDY)
    assert bfl("study", path, "--uncommitted", "--output", tmp_path / "out", *options) == 2
    told = capsys.readouterr().err
    assert named in told
    assert told.startswith("refused: ")
    assert not (tmp_path / "out").exists()


def test_code_that_no_commit_has_makes_no_study(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_study(tmp_path / "files", STUDY)
    given = ("study", path, "--output", tmp_path / "out")
    monkeypatch.setattr("bfl.commands.study.describe_environment", lambda: {"git-changed": True})
    assert bfl(*given) == 2
    assert "--uncommitted" in capsys.readouterr().err
    assert bfl(*given, "--dry-run") == 0
    assert "flipout-ws_iid_seed-0: missing" in " ".join(capsys.readouterr().out.split())
    assert not (tmp_path / "out").exists()


def test_looking_at_a_study_runs_no_plugin(fake: Fake, capsys: Any) -> None:
    """Neither of its file nor of its folder; its own metrics and axes are taken on trust."""
    marker = fake.folder / "has-run"
    plugin = fake.folder / "mine.py"
    plugin.write_text(f"from pathlib import Path\nPath({str(marker)!r}).touch()\n")
    text = STUDY.replace("[base]", f'[base]\nplugins = "{plugin}"')
    text = text.replace('"negative-log-likelihood"', '"my-metric"')
    write_study(fake.folder / "files", text)
    folder = fake.opened().folder.path
    for command in (
        ("table", fake.file, "--output", fake.folder / "out"),
        ("study", fake.file, "--output", fake.folder / "out", "--dry-run"),
    ):
        assert bfl(*command) == 0, capsys.readouterr().err
    from bfl.experiments.studies.runner import begin

    begin(fake.opened().folder, fake.opened().study)
    assert bfl("table", folder) == 0
    assert bfl("report", folder) != 0, "no run is done"
    assert not marker.exists()


@pytest.mark.parametrize("command", ["table", "plot"])
def test_what_is_no_study_is_refused(command: str, tmp_path: Path, capsys: Any) -> None:
    assert bfl(command, tmp_path) == 2
    assert str(tmp_path) in capsys.readouterr().err
    assert bfl(command, tmp_path / "no.toml") == 2
    assert "no.toml" in capsys.readouterr().err
    assert bfl("study", write_study(tmp_path).with_suffix("")) == 2
    assert "small.toml" in capsys.readouterr().err


REAL = """
title = "Real"
[base]
model = "mlp"
dataset = "npz:images.npz"
clients = 2
rounds = 2
local-epochs = 1
train-examples = 0.5
test-examples = 16
mc-samples = 2
evaluate-mc-samples = 1
[axes]
seed = [0]
strategy = ["nwa"]
"""


@pytest.mark.slow
def test_a_real_study(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    images = random.integers(0, 255, (80, 16, 16), np.uint8)
    labels = np.arange(80) % 4
    np.savez(tmp_path / "images.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    path = write_study(tmp_path / "files", REAL, PUBLISHED)
    options = ("--uncommitted", "--backend", "serial")
    assert bfl("study", path, *options) == 0, capsys.readouterr().err
    assert "1 of 1 runs are done" in capsys.readouterr().out
    folder = tmp_path / "runs" / "small"
    assert bfl("study", path, *options, "--only", "nwa") == 0
    assert bfl("table", folder) == 0
    assert "| nwa | 1 of 1 |" in capsys.readouterr().out
    assert bfl("plot", folder) == 0
    assert "retention-curves.png" in capsys.readouterr().out
    made = bfl_of_python.study(path)
    frame = made.results.frame
    assert frame["test-images"].tolist() == [16]
    assert made.lines["runs_done"].tolist() == [1]
    assert {1, 2} <= set(made.results.curves.query("metric == 'accuracy'")["round"])
