"""What another study has made is not made again: its results alone are enough."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from small_study import STUDY, PretendingEngine, write_study

from bfl.commands import study as commands
from bfl.commands.main import main
from bfl.experiments.studies.run_result import digest, read_result

SMALL = STUDY.split("[[columns]]")[0]
# One row as there, by another name, and one that is not quite: its clients train for longer.
OTHER = (
    SMALL.replace('title = "Small"', 'title = "Other"\nname = "other"\nreuse = ["small"]')
    .replace('rule = "WS"', 'rule = "pooled"')
    .replace('strategy = "nwa"', 'strategy = "nwa"\nlocal-epochs = 3')
)
ONE = "flipout-pooled_iid_seed-0"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> PretendingEngine:
    engine = PretendingEngine()
    monkeypatch.setattr(commands, "_engine", lambda *_: lambda: engine)
    return engine


@pytest.fixture
def checkout(tmp_path: Path, engine: PretendingEngine) -> Path:
    """A checkout with both studies' files and, of the small one, the results and no runs."""
    place = tmp_path / "checkout"
    file = write_study(place / "configs", SMALL)
    (place / "configs" / "other.toml").write_text(OTHER, encoding="utf-8")
    assert bfl("study", file, "--output", tmp_path / "made") == 0
    results = place / "docs" / "results" / "small"
    assert bfl("study", "merge", results, tmp_path / "made" / "small") == 0
    engine.asked.clear()
    return place


def bfl(*arguments: Any) -> int:
    return main([str(argument) for argument in arguments])


@pytest.mark.parametrize("beside", [True, False])
def test_results_of_another_study_are_taken_where_the_configuration_is_the_same(
    beside: bool, checkout: Path, tmp_path: Path, engine: PretendingEngine
) -> None:
    if not beside:  # in the same output, as a merge leaves them
        shutil.move(checkout / "docs" / "results" / "small", tmp_path / "out" / "small")
    other = ("study", checkout / "configs" / "other.toml", "--output", tmp_path / "out")
    assert bfl(*other) == 0
    made = {name for name, _ in engine.asked}
    assert len(made) == 4
    assert all(name.startswith("flipout-nwa") for name in made)
    taken = read_result(tmp_path / "out" / "other" / "runs" / f"{ONE}.json")
    assert taken.name == ONE
    assert taken.metrics["accuracy"] == 0.5
    assert bfl("table", tmp_path / "out" / "other") == 0


def test_results_of_another_study_are_not_looked_for_where_none_are_wanted(
    checkout: Path, tmp_path: Path, engine: PretendingEngine
) -> None:
    other = ("study", checkout / "configs" / "other.toml", "--output", tmp_path / "out")
    assert bfl(*other, "--results", "none") == 0
    assert len({name for name, _ in engine.asked}) == 8


def test_results_of_another_study_at_another_scale_are_not_taken(
    checkout: Path, tmp_path: Path, engine: PretendingEngine
) -> None:
    other = ("study", checkout / "configs" / "other.toml", "--output", tmp_path / "out")
    assert bfl(*other, "--scale", "rounds=2") == 0
    assert len({name for name, _ in engine.asked}) == 8


def test_two_studies_that_contradict_are_told(
    checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = ("study", checkout / "configs" / "other.toml", "--output", tmp_path / "out")
    assert bfl(*other) == 0
    (small,) = (checkout / "docs" / "results").rglob("flipout-ws_iid_seed-0.json")
    content = json.loads(small.read_text(encoding="utf-8"))
    content["metrics"]["accuracy"] = 0.75
    content["content"] = digest({k: v for k, v in content.items() if k != "content"})
    small.write_text(json.dumps(content), encoding="utf-8")
    capsys.readouterr()
    assert bfl(*other) == 2
    said = capsys.readouterr().err
    assert str(small) in said
    assert f"{ONE}.json" in said
    assert "accuracy is 0.5 and 0.75" in said
