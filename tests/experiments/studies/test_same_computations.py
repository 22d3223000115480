"""Runs of a study that are one computation are made once."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from small_study import PretendingEngine, bfl, write_study

from bfl.aggregation.weightings import weightings
from bfl.configuration import resolve
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.planning import computation

Output = pytest.CaptureFixture[str]
WEIGHTED = """
title = "Weighted"
[base]
rounds = 2
clients = 3
dataset = "npz:images.npz"
[axes]
seed = [0]
partition = ["iid", "dirichlet"]
weighting = ["equal", "train-size", "distance"]
"""


def _images(folder: Path, train: int) -> None:
    images = np.random.default_rng(0).integers(0, 255, (train, 16, 16), np.uint8)
    labels = np.arange(train) % 4
    np.savez(folder / "images.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)


@pytest.mark.parametrize(("images", "made"), [(90, 5), (91, 6)])
def test_runs_that_are_one_computation_are_made_once(
    images: int,
    made: int,
    tmp_path: Path,
    engine: PretendingEngine,
    capsys: Output,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three clients of 30 images each are equal under iid, and under no Dirichlet partition."""
    monkeypatch.chdir(tmp_path)
    _images(tmp_path, images)
    file = write_study(tmp_path / "files", WEIGHTED, None)
    assert bfl("study", file, "--shard", "1/1") == 0
    assert len(engine.asked) == made
    taken = StudyFolder(tmp_path / "runs" / "small").results()["iid_train-size_seed-0"]
    assert taken.made_as == ("iid_equal_seed-0" if images == 90 else "")
    assert taken.configuration["weighting"] == "train-size"
    engine.asked.clear()
    capsys.readouterr()
    assert bfl("study", file) == 0
    assert engine.asked == []
    assert bfl("table", "runs/small") == 0
    assert "6 of 6 runs are done" in capsys.readouterr().out


@pytest.mark.parametrize("order", [("equal", "train-size"), ("train-size", "equal")])
def test_runs_that_are_one_computation_are_made_once_in_two_calls_as_well(
    order: tuple[str, str],
    tmp_path: Path,
    engine: PretendingEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    _images(tmp_path, 90)
    file = write_study(tmp_path / "files", WEIGHTED, None)
    first, second = (f"iid_{weighting}_seed-0" for weighting in order)
    assert bfl("study", file, "--only", first) == 0
    # The other one may have been made by another machine, which has sent its results alone.
    shutil.move(tmp_path / "runs", tmp_path / "theirs")
    theirs = ("--results", tmp_path / "theirs" / "small")
    assert bfl("study", file, "--only", second, *theirs) == 0
    assert [name for name, _ in engine.asked] == [first]
    folder = StudyFolder(tmp_path / "runs" / "small")
    assert folder.results()[second].made_as == first
    # Both are there: none takes over the other's.
    assert bfl("study", file, "--only", "iid_", "--shard", "1/1", *theirs) == 0
    assert [name for name, _ in engine.asked] == [first, "iid_distance_seed-0"]
    assert folder.results()[first].made_as == ""


def test_a_failure_is_that_of_all_runs_of_the_computation(
    tmp_path: Path, engine: PretendingEngine, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str, number: int) -> None:
        raise ValueError("no luck")

    engine.act = fail
    monkeypatch.chdir(tmp_path)
    _images(tmp_path, 90)
    file = write_study(tmp_path / "files", WEIGHTED, None)
    assert bfl("study", file, "--only", "iid_equal", "--only", "iid_train-size") == 1
    assert "the same computation as iid_equal_seed-0, which has failed" in capsys.readouterr().err


def test_weights_that_count_alone_are_one_computation_on_equal_clients() -> None:
    """Where they are equal to the last bit: rounded otherwise, they may give other bits."""

    def of(weighting: str, sizes: list[int]) -> str:
        return computation(resolve({"weighting": weighting, "clients": len(sizes) or 3}), sizes)

    equal = resolve({"weighting": "equal", "clients": 39})
    for name in (cls.name for cls in weightings.classes() if cls.counts_only):
        other = resolve({"weighting": name, "clients": 39})
        for size in (1, 7, 1437, 50_000):
            same = all(
                other.weighting.weigh_counts([size] * count).tobytes()
                == equal.weighting.weigh_counts([size] * count).tobytes()
                for count in range(1, 40)
            )
            assert same or name not in ("equal", "train-size")
            assert (of(name, [size] * 39) == of("equal", [size] * 39)) == same, (name, size)
    assert of("train-size", [5, 5, 4]) != of("train-size", [5, 5, 5])
    assert of("train-size", []) != of("train-size", [5, 5, 5])
