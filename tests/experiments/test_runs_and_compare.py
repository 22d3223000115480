"""``bfl runs`` and ``bfl compare``: folders of runs, studies, and what is wrong with some."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from rich.text import Text

from bfl.commands.main import main
from bfl.configuration import resolve
from bfl.evaluation.prediction import PredictionStatistics
from bfl.experiments import comparison
from bfl.experiments.comparison import differing_keys, labels, runs_in
from bfl.experiments.results import RunFolder, write_evaluation
from bfl.experiments.results.run_folder import METRICS, RETENTION, ROUNDS, is_written_to, locked
from bfl.experiments.studies import read_study
from bfl.experiments.studies.results import (
    GIVEN,
    StudyFolder,
    gather,
    open_study,
    read_run,
    write_results,
)
from bfl.experiments.studies.runner import begin

Output = pytest.CaptureFixture[str]

STUDY = """
title = "Two rules"
[base]
rounds = 4
clients = 3
[[rows]]
label = "WS"
strategy = "ws"
[[rows]]
label = "NWA"
strategy = "nwa"
"""


def bfl(*arguments: Any) -> int:
    return main([str(argument) for argument in arguments])


def make_run(
    parent: Path, name: str, *, rounds: int = 4, finished: bool = True, **keys: Any
) -> RunFolder:
    values = resolve({"rounds": 4, **{k.replace("_", "-"): v for k, v in keys.items()}}).values
    folder = RunFolder.create(parent, name, values, {})
    for number in range(1, rounds + 1):
        numbers = {"accuracy": number / 10, "negative-log-likelihood": 1 / number}
        folder.append_round({"round": number, "seconds": 1.0, **numbers})
    if finished:
        samples = np.random.default_rng(0).dirichlet(np.ones(3), size=(2, 30))
        predictions = PredictionStatistics.of(samples).result()
        folder.write_metrics(write_evaluation(folder, predictions, np.arange(30) % 3))
    return folder


def make_study(parent: Path) -> StudyFolder:
    file = parent / "two.toml"
    file.write_text(STUDY)
    study = StudyFolder(parent / "two")
    begin(study, read_study(file))
    return study


def table(capsys: Output) -> dict[str, list[str]]:
    """Return the rows of a printed table by their first cell."""
    rows = [
        [cell.strip() for cell in line.strip("│┃").replace("┃", "│").split("│")]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith(("│", "┃"))
    ]
    return {row[0]: row[1:] for row in rows}


def test_runs_are_listed_with_state_differences_and_metrics(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = make_run(tmp_path, "done", seed=1, learning_rate=0.00012)
    make_run(tmp_path / "group", "stopped", rounds=2, finished=False)
    make_run(tmp_path, "begun", rounds=0, finished=False)
    (tmp_path / "no-run").mkdir()
    monkeypatch.setenv("COLUMNS", "20")  # narrow terminals cut nothing off
    assert bfl("runs", tmp_path) == 0
    rows = table(capsys)
    assert rows.pop("run") == [
        "state",
        "learning-rate",
        "seed",
        "accuracy ↑",
        "negative-log-likelihood ↓",
        "expected-calibration-error ↓",
    ]
    numbers = done.metrics()
    assert rows["done"][:3] == ["finished", "0.00012", "1"]
    assert rows["done"][3] == f"{numbers['accuracy']:.4f}"
    assert rows["group/stopped"] == ["stopped at round 2 of 4", "0.001", "0", "–", "–", "–"]
    assert rows["begun"][0] == "stopped at round 0 of 4"
    assert set(rows) == {"done", "group/stopped", "begun"}


def test_runs_are_listed_in_the_order_in_which_they_began(tmp_path: Path, capsys: Output) -> None:
    """By what they say of it, else by their files; those that have not begun come last."""
    study = make_study(tmp_path)
    make_run(study.runs, "nwa")
    for name, day in (("z", 1), ("b", 3), ("a", 2)):
        folder = make_run(tmp_path, name, finished=False)
        folder.write_json("run.json:environment", {"started": f"1999-05-0{day}T01:00:00+00:00"})
    (folder.path / "run.json").write_text("{")
    os.utime(folder.path / "config.toml", (0, 0))
    assert bfl("runs", tmp_path) == 0
    assert [name for name in table(capsys) if name != "run"] == ["a", "z", "b", "two/nwa", "two/ws"]


def test_runs_fit_a_terminal_and_lose_nothing(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "a-run-" + "with-a-long-name-" * 4
    done = make_run(tmp_path, name, seed=1, learning_rate=0.00012)
    make_run(tmp_path, "begun", rounds=0, finished=False)
    monkeypatch.setenv("FORCE_COLOR", "1")  # to rich, a terminal
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "80")
    assert bfl("runs", tmp_path) == 0
    printed = capsys.readouterr().out
    shown = Text.from_ansi(printed).plain
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    for word in ("expected-calibration-error", "stopped at round 0 of 4", "0.00012"):
        assert word in shown
    assert f"{done.metrics()['negative-log-likelihood']:.4f}" in shown


def test_a_run_that_a_server_is_at_is_running(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "run", rounds=3, finished=False)
    (run,) = runs_in(tmp_path)
    assert run.state() == "stopped at round 3 of 4"
    with locked(folder.path):
        assert run.state() == "running, round 3 of 4"
    assert run.state() == "stopped at round 3 of 4"
    assert not is_written_to(tmp_path)


def test_a_studys_runs_are_listed_begun_or_not(tmp_path: Path, capsys: Output) -> None:
    study = make_study(tmp_path)
    make_run(study.runs, "ws", strategy="ws", clients=3)
    log = study.write("runs/nwa/log.txt", b"output\nfailed: because\n")
    for place, name in ((study.path, "ws"), (tmp_path, "two/ws")):
        assert bfl("runs", place) == 0
        rows = table(capsys)
        assert rows[name][0] == "finished"
        assert rows[name.replace("ws", "nwa")][0] == "failed"
    log.unlink()
    assert bfl("runs", study.path) == 0
    assert table(capsys)["nwa"][0] == "missing"


def test_damaged_runs_and_studies_do_not_hide_the_others(tmp_path: Path, capsys: Output) -> None:
    make_run(tmp_path, "good")
    (make_run(tmp_path, "bad-metrics").path / METRICS).write_text("{")
    (make_run(tmp_path, "bad-config").path / "config.toml").write_text("= 3")
    (make_run(tmp_path, "bad-rounds", finished=False).path / ROUNDS).write_text("{\n{}\n{}\n")
    assert bfl("runs", tmp_path) == 0
    rows = table(capsys)
    assert rows["good"][0] == "finished"
    for name, file in (("metrics", METRICS), ("config", "config.toml"), ("rounds", ROUNDS)):
        state = rows[f"bad-{name}"][0]
        assert state.startswith("unreadable: ")
        assert file in state
    study = make_study(tmp_path)
    (study.path / "study.toml").write_text("title = ")
    assert bfl("runs", tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("good" in line for line in lines)
    assert "study.toml" in lines[-1]
    assert bfl("runs", study.path) == 2
    assert bfl("compare", tmp_path, "--output", tmp_path / "figure.png") == 2


@pytest.mark.parametrize("command", ["runs", "compare"])
def test_a_folder_without_a_run_is_refused(command: str, tmp_path: Path, capsys: Output) -> None:
    assert bfl(command, tmp_path) == 2
    assert "there is no run in" in capsys.readouterr().err
    assert bfl(command, tmp_path / "none") == 2
    assert "there is no folder" in capsys.readouterr().err


def test_two_runs_are_compared(tmp_path: Path, capsys: Output) -> None:
    one = make_run(tmp_path, "one", seed=1)
    make_run(tmp_path, "two", seed=2, rounds=3, finished=False)
    output = tmp_path / "figure.png"
    assert bfl("compare", one.path, tmp_path / "two", "--output", output) == 0
    printed = table(capsys)
    assert printed[""] == ["one", "two"]
    assert printed["state"] == ["finished", "stopped at round 3 of 4"]
    assert printed["seed"] == ["1", "2"]
    assert "rounds" not in printed
    for name, value in one.metrics().items():
        assert printed[name][1] == "–"
        assert printed[name][0] != "–", (name, value)
    first = output.read_bytes()
    assert first.startswith(b"\x89PNG")
    assert bfl("compare", one.path, tmp_path / "two", "--output", output) == 0
    assert output.read_bytes() == first


def test_the_overlay_has_a_line_for_each_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    drawn: list[Any] = []
    monkeypatch.setattr(comparison.style, "png", lambda figure: drawn.append(figure) or b"")
    folders = (
        make_run(tmp_path, "one", seed=1),
        make_run(tmp_path, "two", seed=2, rounds=3, finished=False),
    )
    names = ("seed 1", "seed $2")
    runs = {name: read_run(folder)[1] for name, folder in zip(names, folders, strict=True)}
    comparison.overlay(runs)
    (figure,) = drawn
    accuracy, likelihood, retention = figure.axes
    assert [line.get_label() for line in accuracy.lines] == list(runs)
    np.testing.assert_allclose(accuracy.lines[1].get_ydata(), [0.1, 0.2, 0.3])
    np.testing.assert_allclose(likelihood.lines[0].get_ydata(), [1, 1 / 2, 1 / 3, 1 / 4])
    content = folders[0].read_json(RETENTION)
    curve = content["curves"]["accuracy"]["predictive-entropy"]["value"]
    places = [content["fraction"].index(share) for share in retention.lines[0].get_xdata()]
    kept = [curve[place] for place in places]
    np.testing.assert_allclose(retention.lines[0].get_ydata(), kept, rtol=1e-6)
    assert not len(retention.lines[1].get_ydata())
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(runs)
    figure.canvas.draw()


def test_results_alone_are_compared_as_their_runs_are(tmp_path: Path, capsys: Output) -> None:
    """As in docs/results: files, and no folders of runs."""
    study = make_study(tmp_path)
    for run in study.study().runs:
        folder = make_run(study.runs, run.name, strategy=run.name, clients=3)
        (folder.path / GIVEN).write_text(tomli_w.dumps(dict(run.values)))
    output, again = tmp_path / "runs.png", tmp_path / "results.png"
    assert bfl("compare", study.path, "--output", output) == 0
    printed = table(capsys)
    assert printed[""] == ["ws", "nwa"]
    assert printed["row"] == ["WS", "NWA"]
    write_results(study, gather(open_study(study.path)))
    shutil.rmtree(study.runs)
    assert bfl("compare", study.path, "--output", again) == 0
    results = table(capsys)
    for key in ("", "state", "row", "accuracy", "negative-log-likelihood"):
        assert results[key] == printed[key]
    assert again.read_bytes() == output.read_bytes()
    assert bfl("compare", study.path, study.path, "--output", again) == 2
    assert str(study.run("ws").path) in capsys.readouterr().err
    assert bfl("runs", study.path) == 0
    assert "finished" in capsys.readouterr().out


def test_comparisons_that_say_nothing_are_refused(tmp_path: Path, capsys: Output) -> None:
    one, two = (make_run(tmp_path, name, rounds=0, finished=False).path for name in "ab")
    study = make_study(tmp_path)
    cases: list[tuple[tuple[Any, ...], str]] = [
        ((one,), "takes two"),
        ((one, one), "given twice"),
        ((one, two), "no curve to draw"),
        ((one, study.path), "has begun"),
        ((one, two, "--output", "figure.pdf"), "ends in .png"),
    ]
    for arguments, word in cases:
        assert bfl("compare", *arguments) == 2
        assert word in capsys.readouterr().err


def test_what_differs() -> None:
    configs = [
        {"seed": 0, "name": "a", "data-dir": "x", "rate": 1.0},
        {"seed": 1, "name": "b", "data-dir": "y", "rate": 1.0, "new": True},
    ]
    assert differing_keys(configs) == ["seed", "new"]
    assert labels(["a", "b"], configs) == ["seed 0 · new –", "seed 1 · new true"]
    assert labels(["a", "b"], [configs[0]] * 2) == ["a", "b"]
