"""A finished run is one small file: it spares the run, and tables and figures are made of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from small_study import STUDY, PretendingEngine, write_study

from bfl.commands import study as commands
from bfl.commands.main import main
from bfl.errors import DataError
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.studies.run_result import (
    digest,
    portable,
    read_result,
    result_of,
    write_result,
)

Output = pytest.CaptureFixture[str]
ONE = "flipout-ws_iid_seed-0"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> PretendingEngine:
    engine = PretendingEngine()
    monkeypatch.setattr(commands, "_engine", lambda *_: lambda: engine)
    return engine


def bfl(*arguments: Any) -> int:
    return main([str(argument) for argument in arguments])


class Checkout:
    """A checkout with a small study, and the results of some runs that another machine has made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = write_study(path / "configs")
        self.results = path / "docs" / "results" / "small"
        self.out = path / "runs"

    def made(self, *options: Any) -> None:
        """Make runs elsewhere and keep nothing of them but their results."""
        other = self.path.parent / "other-machine"
        assert bfl("study", self.file, "--output", other, "--results", "none", *options) == 0
        (self.results / "runs").mkdir(parents=True, exist_ok=True)
        for file in (other / "small" / "runs").glob("*.json"):
            shutil.copy(file, self.results / "runs")
        shutil.rmtree(other)

    def study(self, *options: Any) -> int:
        return bfl("study", self.file, "--output", self.out, *options)

    def edit(self, *, sealed: bool = True, **changes: Any) -> Path:
        """Change the result of a run by hand; ``sealed``: such that it looks made so."""
        path = self.results / "runs" / f"{ONE}.json"
        content = {**json.loads(path.read_text(encoding="utf-8")), **changes}
        if sealed:
            content["content"] = digest({k: v for k, v in content.items() if k != "content"})
        path.write_text(json.dumps(content), encoding="utf-8")
        return path


@pytest.fixture
def checkout(tmp_path: Path, engine: PretendingEngine) -> Checkout:
    return Checkout(tmp_path / "checkout")


def test_a_result_says_all_that_tables_and_figures_need(
    checkout: Checkout, engine: PretendingEngine
) -> None:
    assert checkout.study("--only", ONE) == 0
    path = checkout.out / "small" / "runs" / f"{ONE}.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["metrics"] == {"accuracy": 0.5, "negative-log-likelihood": 1.0}
    assert content["seconds"] == 4.0
    assert content["configuration"]["seed"] == 0
    assert content["configuration"]["strategy"] == "weighted-sum-of-normals"
    assert content["rounds"] == {"round": [1, 2, 3, 4], "accuracy": [0.1, 0.2, 0.3, 0.4]}
    assert str(checkout.path) not in path.read_text(encoding="utf-8")
    result = read_result(path)
    folder = RunFolder(path.with_suffix(""))
    assert result == result_of(folder, ONE)
    write_result(path.with_name("again.json"), result)
    assert path.with_name("again.json").read_bytes() == path.read_bytes()
    folder.write_json("data.json", {"train": 64 * "a"})
    write_result(path, result_of(folder, ONE))
    assert read_result(path).data == {"train": 64 * "a"} != result.data


def test_runs_whose_results_are_there_are_not_made_again(
    checkout: Checkout, engine: PretendingEngine, capsys: Output
) -> None:
    checkout.made("--only", "seed-0")
    engine.asked.clear()
    assert checkout.study("--dry-run") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"{ONE}: done as ../docs/results/small/runs/{ONE}.json" in printed
    assert checkout.study() == 0
    assert [name for name, _ in engine.asked] == [
        name for name in _names() if name.endswith("seed-1")
    ]
    assert "8 of 8 runs are done" in capsys.readouterr().out
    assert bfl("table", checkout.out / "small") == 0
    assert "| Flipout | WS | iid | 2 of 2 | 50.00 ± 0.00 (15.81) |" in capsys.readouterr().out


def _names() -> list[str]:
    return [
        f"flipout-{rule}_{partition}_seed-{seed}"
        for seed in (0, 1)
        for partition in ("iid", "dirichlet-0.5")
        for rule in ("ws", "nwa")
    ]


def test_tables_and_figures_are_made_of_results_alone(checkout: Checkout, capsys: Output) -> None:
    checkout.made()
    assert bfl("table", checkout.file, "--output", checkout.out) == 0
    assert "8 of 8 runs are done" in capsys.readouterr().out
    assert bfl("plot", checkout.file, "--output", checkout.out) == 0
    assert "learning-curves.png" in capsys.readouterr().out
    place = checkout.path.parent / "elsewhere"
    shutil.move(checkout.results, place)
    assert bfl("table", checkout.file, "--output", checkout.out, "--results", place) == 0
    assert "8 of 8" in capsys.readouterr().out
    assert bfl("table", checkout.file, "--output", checkout.out) == 0
    assert "0 of 8" in capsys.readouterr().out


def test_a_result_of_another_configuration_is_refused(
    checkout: Checkout, engine: PretendingEngine, capsys: Output
) -> None:
    checkout.made("--only", ONE)
    engine.asked.clear()
    write_study(checkout.file.parent, STUDY.replace("local-epochs = 2", "local-epochs = 3"))
    for command in (
        ["study", checkout.file, "--output", checkout.out],
        ["table", checkout.file, "--output", checkout.out],
        ["plot", checkout.file, "--output", checkout.out],
    ):
        assert bfl(*command) == 2
        said = capsys.readouterr().err
        assert f"runs/{ONE}.json is a run of another configuration (digest " in said
        assert "local-epochs was 2 and is 3" in said
    assert engine.asked == []


def test_two_results_of_one_run_with_different_numbers_are_refused(
    checkout: Checkout, capsys: Output
) -> None:
    assert checkout.study("--only", ONE) == 0
    checkout.made("--only", ONE)
    assert checkout.study("--only", ONE) == 0, "the same numbers"
    edited = checkout.edit(metrics={"accuracy": 0.51, "negative-log-likelihood": 1.0})
    for command in ("study", "table"):
        assert bfl(command, checkout.file, "--output", checkout.out) == 2
        said = capsys.readouterr().err
        assert str(edited) in said
        assert str(checkout.out / "small" / "runs" / f"{ONE}.json") in said
        assert "accuracy is 0.5 and 0.51" in said
    assert checkout.study("--only", ONE, "--results", "none") == 0


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"configuration": {"rounds": 4, "seed": 3}}, "digest"),
        ({"name": "flipout-nwa_iid_seed-0"}, "flipout-nwa_iid_seed-0"),
        ({"format": 3}, "format"),
        ({"metrics": None}, "not the result of a run"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_result_that_has_been_changed_is_refused(
    checkout: Checkout, capsys: Output, change: dict[str, Any], word: str
) -> None:
    checkout.made("--only", ONE)
    checkout.edit(**change)
    assert checkout.study() == 2
    said = capsys.readouterr().err
    assert f"{ONE}.json" in said
    assert word in said


@pytest.mark.parametrize(
    "change",
    [
        {"metrics": {"accuracy": 0.51, "negative-log-likelihood": 1.0}},
        {"rounds": {"round": [1, 2, 3, 4], "accuracy": [0.1, 0.2, 0.3, 0.5]}},
        {"partition": "0" * 64},
        {"content": "0" * 64},
    ],
    ids=["metrics", "curve", "partition", "digest"],
)
def test_a_result_changed_by_hand_is_refused_by_its_name(
    checkout: Checkout, capsys: Output, change: dict[str, Any]
) -> None:
    checkout.made("--only", ONE)
    edited = checkout.edit(sealed=False, **change)
    for command in ("study", "table"):
        assert bfl(command, checkout.file, "--output", checkout.out) == 2
        said = capsys.readouterr().err
        assert f"{edited}: its content has the digest" in said
        assert "changed since it was written" in said


def test_a_result_whose_digest_is_taken_out_is_refused(checkout: Checkout, capsys: Output) -> None:
    checkout.made("--only", ONE)
    path = checkout.results / "runs" / f"{ONE}.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    del content["content"]
    path.write_text(json.dumps(content), encoding="utf-8")
    assert checkout.study() == 2
    assert f"{path} is not the result of a run: KeyError('content')" in capsys.readouterr().err


def test_results_of_the_older_format_are_read_and_get_their_digests_by_merging(
    checkout: Checkout, capsys: Output
) -> None:
    checkout.made("--only", ONE)
    path = checkout.results / "runs" / f"{ONE}.json"
    new = path.read_bytes()
    content = {**json.loads(new), "format": 1}
    del content["content"]
    path.write_text(json.dumps(content), encoding="utf-8")
    older = read_result(path)
    assert not older.sealed
    assert checkout.study("--dry-run") == 0
    capsys.readouterr()
    assert bfl("study", "merge", checkout.results) == 0
    assert f"{path}: got a digest of its content, and had none" in capsys.readouterr().out
    assert bfl("study", "merge", checkout.results) == 0
    assert str(path) not in capsys.readouterr().out
    assert path.read_bytes() == new
    assert read_result(path) == older
    assert read_result(path).sealed


def test_no_json_is_refused_and_so_is_a_folder_that_is_not_there(
    checkout: Checkout, capsys: Output, tmp_path: Path
) -> None:
    path = tmp_path / "torn.json"
    path.write_text('{"format": 1,', encoding="utf-8")
    with pytest.raises(DataError, match=r"torn.json is not the result of a run"):
        read_result(path)
    assert checkout.study("--results", tmp_path / "no") == 2
    assert "--results: there is no folder" in capsys.readouterr().err


def test_a_configuration_is_the_same_on_every_machine() -> None:
    here = {"dataset": "npz:/here/images.npz", "data-dir": "/here", "rounds": 2, "resume": True}
    there = {"dataset": "npz:/there/at/images.npz", "data-dir": "", "rounds": 2}
    assert portable(here) == portable(there) == {"dataset": "npz:images.npz", "rounds": 2}
    assert portable({"dataset": "hf:a/b"}) == {"dataset": "hf:a/b"}
    small = {"dataset": "resized:14:npz:/here/images.npz", "server-data": "held-back"}
    assert portable(small) == {**small, "dataset": "resized:14:npz:images.npz"}


def test_a_study_grows_by_seeds_and_by_rounds(
    checkout: Checkout, engine: PretendingEngine, capsys: Output
) -> None:
    """What is there is gone on with; nothing is made twice."""
    assert checkout.study("--scale", "rounds=2,seeds=1") == 0
    folder = checkout.out / "small"
    file = folder / "runs" / f"{ONE}.json"
    assert read_result(file).number_of_rounds == 2
    engine.asked.clear()
    assert checkout.study("--scale", "rounds=2") == 0
    assert [name for name, _ in engine.asked] == _names()[4:]
    assert bfl("table", folder) == 0
    assert "2 of 2" in capsys.readouterr().out
    engine.asked.clear()
    assert checkout.study("--only", ONE) == 0
    assert engine.made_rounds[-2:] == [(ONE, 3), (ONE, 4)]
    assert read_result(file).number_of_rounds == 4
    capsys.readouterr()
    assert bfl("table", folder) == 0
    printed = capsys.readouterr().out
    assert "| WS | iid | 1 of 2 |" in printed
    assert checkout.study("--scale", "rounds=3") == 2
    assert "allowed: at least 4" in capsys.readouterr().err


def test_results_of_fewer_rounds_do_not_pass_for_finished_runs(
    checkout: Checkout, engine: PretendingEngine, capsys: Output
) -> None:
    checkout.made("--scale", "rounds=2")
    engine.asked.clear()
    assert bfl("table", checkout.file, "--output", checkout.out) == 0
    assert "0 of 8" in capsys.readouterr().out
    assert checkout.study("--only", ONE) == 0
    assert engine.asked == [(ONE, 3)]
    checkout.made("--only", ONE)
    assert checkout.study("--scale", "rounds=2", "--only", ONE, "--output", checkout.out / "x") == 2
    assert "rounds was 4 and is 2" in capsys.readouterr().err


def test_runs_made_elsewhere_are_listed(checkout: Checkout, capsys: Output) -> None:
    assert checkout.study("--scale", "seeds=1") == 0
    folder = checkout.out / "small" / "runs" / ONE
    shutil.rmtree(folder)
    shutil.rmtree(folder.with_name("flipout-nwa_iid_seed-0"))
    folder.with_name("flipout-nwa_iid_seed-0.json").unlink()
    capsys.readouterr()
    assert bfl("runs", checkout.out / "small") == 0
    rows = {line.split()[1]: line for line in capsys.readouterr().out.splitlines() if "│" in line}
    assert "finished" in rows[ONE]
    assert "0.5000" in rows[ONE]
    assert "missing" in rows["flipout-nwa_iid_seed-0"]


def test_a_run_in_which_the_server_judged_nothing_is_over_and_a_begun_one_is_not(
    checkout: Checkout, engine: PretendingEngine, capsys: Output
) -> None:
    """As ``server-evaluates=false`` leaves it: its metrics are there, and there are none."""
    assert checkout.study("--only", ONE) == 0
    folder = RunFolder(checkout.out / "small" / "runs" / ONE)
    kept = folder.path.with_name(f"{ONE}.json")
    kept.unlink()
    metrics = folder.path / "metrics.json"
    metrics.unlink()
    table = ("table", checkout.file, "--output", checkout.out)
    capsys.readouterr()
    assert bfl(*table) == 0
    assert "0 of 8 runs are done" in capsys.readouterr().out
    assert not result_of(folder, ONE).over
    folder.write_metrics({})
    assert result_of(folder, ONE).over
    assert bfl(*table) == 0
    assert "1 of 8 runs are done" in capsys.readouterr().out
    engine.asked.clear()
    assert checkout.study("--only", ONE) == 0
    assert engine.asked == [], "it is not made again"
    assert read_result(kept).over
    shutil.rmtree(folder.path)
    capsys.readouterr()
    assert bfl(*table) == 0
    assert "1 of 8 runs are done" in capsys.readouterr().out, "by its file alone"
    assert checkout.study("--only", ONE) == 0
    assert engine.asked == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"format": True}, "its format is True"),
        ({"format": 1.0}, "its format is 1.0"),
        ({"format": 2.0}, "its format is 2.0"),
        ({"format": 1}, "content"),
        ({"format": 1, "data": {}, "content": None}, "data"),
        ({"format": 1, "data": {"train": 64 * "a"}, "content": None}, "data"),
    ],
    ids=str,
)
def test_a_result_does_not_get_around_its_digest_by_an_older_format(
    checkout: Checkout, capsys: Output, change: dict[str, Any], word: str
) -> None:
    checkout.made("--only", ONE)
    path = checkout.edit(sealed=False, metrics={"accuracy": 0.99}, **change)
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))
    with pytest.raises(DataError, match=word):
        read_result(path)
    capsys.readouterr()
    assert bfl("study", "merge", checkout.results) == 2
    assert str(path) in capsys.readouterr().err
