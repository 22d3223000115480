"""A study that has grown is put together with what it was: the larger description stays."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_study import STUDY, made_up_result, scaled_study

from bfl.commands.main import main
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.run_result import read_result, write_result

Output = pytest.CaptureFixture[str]
ONE = "flipout-ws_iid_seed-0"
MORE_SEEDS = STUDY.replace("seed = [0, 1]", "seed = [0, 1, 2]")
MORE_ROUNDS = STUDY.replace("rounds = 4", "rounds = 6")


def bfl(*arguments: Any) -> int:
    return main([str(argument) for argument in arguments])


def made(place: Path, text: str, scale: str = "", only: str = "") -> Path:
    """Make a study's folder with made-up results, and return it."""
    scaled = scaled_study(place / "files", scale, text=text)
    folder = StudyFolder(place / scaled.folder_name)
    folder.begin(scaled, {}, {})
    for run in scaled.runs:
        if only in run.name:
            write_result(folder.result_file(run.name), made_up_result(run))
    return folder.path


def runs_of(folder: Path) -> list[str]:
    found = json.loads((folder / "study.json").read_text(encoding="utf-8"))["runs"]
    return [str(name) for name in found]


@pytest.mark.parametrize(
    ("small", "scale", "large", "larger_first"),
    [
        (STUDY, "seeds=1", STUDY, False),
        (STUDY, "", MORE_SEEDS, False),
        (STUDY, "", MORE_ROUNDS, False),
        (STUDY, "", MORE_SEEDS, True),
    ],
    ids=["seeds-by-scale", "seeds-in-the-file", "rounds-in-the-file", "larger-first"],
)
def test_the_larger_study_stays(
    tmp_path: Path, capsys: Output, small: str, scale: str, large: str, larger_first: bool
) -> None:
    before = made(tmp_path / "before", small, scale)
    after = made(tmp_path / "after", large)
    into, other = (after, before) if larger_first else (before, after)
    capsys.readouterr()
    assert bfl("study", "merge", into, other) == 0
    printed = capsys.readouterr()
    assert (str(after / "study.json") in printed.out) != larger_first
    assert printed.err == ""
    assert runs_of(into) == runs_of(after)
    number = len(runs_of(after))
    assert bfl("table", into) == 0
    assert f"{number} of {number} runs are done" in capsys.readouterr().out
    rounds = read_result(into / "runs" / f"{ONE}.json").number_of_rounds
    assert rounds == (6 if large == MORE_ROUNDS else 4)


def test_of_several_sources_the_study_is_that_which_has_all_the_others(
    tmp_path: Path, capsys: Output
) -> None:
    places = [
        made(tmp_path / "seeds", MORE_SEEDS),
        made(tmp_path / "rounds", MORE_ROUNDS),
        made(tmp_path / "both", MORE_SEEDS.replace("rounds = 4", "rounds = 6")),
    ]
    capsys.readouterr()
    assert bfl("study", "merge", tmp_path / "all", *places[:2]) == 2
    said = capsys.readouterr().err
    assert all(str(place / "study.json") in said for place in places[:2])
    assert f"has {ONE} with rounds 4, not 6" in said
    assert "has no run flipout-ws_iid_seed-2 and 3 more" in said
    assert not (tmp_path / "all").exists()
    assert bfl("study", "merge", tmp_path / "all", *places) == 0
    assert runs_of(tmp_path / "all") == runs_of(places[2])


@pytest.mark.parametrize(
    ("other", "scale", "word"),
    [
        (STUDY.replace("local-epochs = 2", "local-epochs = 3"), "", "local-epochs 2, not 3"),
        (STUDY, "train-examples=0.5", "train-examples 0.0, not 0.5"),
    ],
)
def test_studies_of_other_settings_are_refused_by_their_files(
    tmp_path: Path, capsys: Output, other: str, scale: str, word: str
) -> None:
    one = made(tmp_path / "one", STUDY, only=ONE)
    two = made(tmp_path / "two", other, scale, "nwa")
    # As the folders of old studies lie in docs/results, without the published table.
    shutil.rmtree(one / "runs")
    (one / "published.csv").unlink()
    before = (one / "study.json").read_bytes()
    capsys.readouterr()
    assert bfl("study", "merge", one, two) == 2
    said = capsys.readouterr().err
    assert str(one / "study.json") in said
    assert str(two / "study.json") in said
    assert word in said
    assert (one / "study.json").read_bytes() == before
    assert not (one / "runs").exists()


def test_rounds_that_the_learning_rate_goes_by_shares_of_do_not_grow(
    tmp_path: Path, capsys: Output
) -> None:
    shares = 'rounds = 4\nschedule = "step"\nlr-milestones = "0.3"\nlr-factors = "0.1"'
    before = made(tmp_path / "before", STUDY.replace("rounds = 4", shares), only=ONE)
    after = made(
        tmp_path / "after",
        STUDY.replace("rounds = 4", shares.replace("rounds = 4", "rounds = 6")),
        only=ONE,
    )
    capsys.readouterr()
    assert bfl("study", "merge", before, after) == 2
    assert "milestones are shares" in capsys.readouterr().err


def test_results_that_the_study_does_not_list_are_said(tmp_path: Path, capsys: Output) -> None:
    folder = made(tmp_path / "made", MORE_SEEDS)
    shutil.copytree(folder / "runs", tmp_path / "results" / "runs")
    fewer = made(tmp_path / "fewer", STUDY, only=ONE)
    capsys.readouterr()
    assert bfl("study", "merge", fewer, tmp_path / "results") == 0
    warned = capsys.readouterr().err.splitlines()
    assert len(warned) == 4
    for line in warned:
        assert line.startswith(f"warning: {fewer / 'runs'}")
        assert line.endswith(f"seed-2.json: no run of the study in {fewer / 'study.json'}")


@pytest.mark.parametrize("milestones", ["0.3", "2"])
def test_a_shorter_run_by_shares_of_the_rounds_is_another_run(
    tmp_path: Path, capsys: Output, milestones: str
) -> None:
    """Its rounds have other rates: they contradict nothing, and are not put with the longer run."""
    steps = f'schedule = "step"\nlr-milestones = "{milestones}"\nlr-factors = "0.1"'
    before = made(tmp_path / "before", STUDY.replace("rounds = 4", f"rounds = 4\n{steps}"), "", ONE)
    after = made(tmp_path / "after", STUDY.replace("rounds = 4", f"rounds = 6\n{steps}"), "", ONE)
    file = before / "runs" / f"{ONE}.json"
    shorter = read_result(file)
    by_shares = milestones == "0.3"
    if by_shares:
        rounds = ({"round": 1, "accuracy": 0.1}, {"round": 2, "accuracy": 0.3})
        write_result(file, replace(shorter, rounds=rounds))
    capsys.readouterr()
    assert bfl("table", after, "--results", before) == 0
    assert "1 of 8 runs are done" in capsys.readouterr().out
    # Without its study, to which results alone are compared.
    (before / "study.json").unlink()
    assert bfl("study", "merge", tmp_path / "all", before, after) == (2 if by_shares else 0)
    assert ("rounds is 4 and 6" in capsys.readouterr().err) == by_shares
    (after / "runs" / f"{ONE}.json").unlink()
    assert bfl("table", after, "--results", before) == 0
    assert "0 of 8 runs are done" in capsys.readouterr().out
    assert bfl("study", "merge", after, before) == (2 if by_shares else 0)
    assert ("rounds was 4 and is 6" in capsys.readouterr().err) == by_shares
