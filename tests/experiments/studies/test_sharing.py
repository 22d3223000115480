"""Several machines share a study: shards, results put together, one computation made once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_study import STUDY, PretendingEngine, write_study

from bfl.aggregation.weightings import weightings
from bfl.commands import study as commands
from bfl.commands.main import main
from bfl.configuration import resolve
from bfl.experiments.studies.run_result import RunResult, digest, read_result
from bfl.experiments.studies.same_data import different_data
from bfl.experiments.studies.same_runs import computation

Output = pytest.CaptureFixture[str]
ONE = "flipout-ws_iid_seed-0"
PLAIN = STUDY.split("[[columns]]")[0]
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


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> PretendingEngine:
    engine = PretendingEngine()
    monkeypatch.setattr(commands, "_engine", lambda *_: lambda: engine)
    return engine


def bfl(*arguments: Any) -> int:
    return main([str(argument) for argument in arguments])


def test_shards_share_the_runs_and_merge_puts_them_together(
    tmp_path: Path, engine: PretendingEngine, capsys: Output
) -> None:
    file = write_study(tmp_path / "files", PLAIN)
    for part in (1, 2, 3):
        assert bfl("study", file, "--output", tmp_path / str(part), "--shard", f"{part}/3") == 0
    names = [name for name, _ in engine.asked]
    assert len(names) == len(set(names)) == 8
    parts = [tmp_path / str(part) / "small" for part in (1, 2, 3)]
    # Made elsewhere: the environment of each stays.
    one = parts[1] / "runs" / f"{names[3]}.json"
    lost = {"numpy": "9", "git-not-found": True, "git-changed": True}
    _change(one, environment=lost)
    capsys.readouterr()
    assert bfl("study", "merge", tmp_path / "all", *parts) == 0
    assert "8 results are new" in capsys.readouterr().out
    assert read_result(tmp_path / "all" / "runs" / f"{names[3]}.json").environment == lost
    assert bfl("study", "merge", tmp_path / "all", *parts) == 0
    assert "0 results are new" in capsys.readouterr().out
    assert bfl("table", tmp_path / "all") == 0
    printed = capsys.readouterr().out
    assert "8 of 8 runs are done" in printed
    assert "Runs differ in numpy: " in printed
    # Whose code is not to be had is counted, for each reason.
    assert printed.count("1 of 8 runs") == 2


@pytest.mark.parametrize("text", ["0/2", "3/2", "2", "1/0", "-1/2", "a/b", "1/2/3", "1.0/2"])
def test_a_shard_outside_its_number_is_refused(
    text: str, tmp_path: Path, engine: PretendingEngine, capsys: Output
) -> None:
    file = write_study(tmp_path / "files", PLAIN)
    assert bfl("study", file, "--output", tmp_path / "out", f"--shard={text}") == 2
    assert f"--shard is '{text}'; allowed: I/N with I from 1 to N" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def _change(path: Path, **changes: Any) -> None:
    content = {**json.loads(path.read_text(encoding="utf-8")), **changes}
    content["digest"] = digest(content["configuration"])
    content["content"] = digest({k: v for k, v in content.items() if k != "content"})
    path.write_text(json.dumps(content), encoding="utf-8")


def test_what_contradicts_is_not_put_together(
    tmp_path: Path, engine: PretendingEngine, capsys: Output
) -> None:
    file = write_study(tmp_path / "files", PLAIN)
    files = []
    for place in ("a", "b"):
        assert bfl("study", file, "--output", tmp_path / place, "--only", ONE) == 0
        files.append(tmp_path / place / "small" / "runs" / f"{ONE}.json")
    (tmp_path / "b" / "small" / "runs" / ONE).rename(tmp_path / "moved")
    sources = [tmp_path / place / "small" for place in ("a", "b")]
    content = read_result(files[1])
    _change(files[1], metrics={**content.metrics, "accuracy": 0.75})
    assert bfl("study", "merge", tmp_path / "all", *sources) == 2
    said = capsys.readouterr().err
    assert all(str(path) in said for path in files)
    assert "accuracy is 0.5 and 0.75" in said
    assert not (tmp_path / "all").exists()
    _change(files[1], configuration={**content.configuration, "batch-size": 7})
    assert bfl("study", "merge", tmp_path / "all", *sources) == 2
    said = capsys.readouterr().err
    assert all(str(path) in said for path in files)
    assert "batch-size is 32 and 7" in said
    # More rounds than the study has: no table would have it.
    _change(files[1], configuration={**content.configuration, "rounds": 9})
    assert bfl("study", "merge", tmp_path / "all", *sources) == 2
    said = capsys.readouterr().err
    assert str(files[1]) in said
    assert str(sources[0] / "study.json") in said
    assert "rounds was 9 and is 4" in said
    assert not (tmp_path / "all").exists()
    assert bfl("study", "merge", tmp_path / "all", tmp_path / "files") == 2
    assert "holds no result" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["train", "test"])
def test_results_of_other_data_are_not_put_together(
    kind: str, tmp_path: Path, engine: PretendingEngine, capsys: Output
) -> None:
    file = write_study(tmp_path / "files", PLAIN)
    for place, only in (("a", "*seed-0"), ("b", "*seed-1")):
        assert bfl("study", file, "--output", tmp_path / place, "--only", only) == 0
    sources = [tmp_path / place / "small" for place in ("a", "b")]
    theirs = [source / "runs" / f"flipout-ws_iid_seed-{i}.json" for i, source in enumerate(sources)]
    merge = ("study", "merge", tmp_path / "all", *sources)
    # As two machines with other images under one name leave them.
    known = {"train": 64 * "a", "test": 64 * "c"}
    _change(theirs[0], data=known)
    for run in (source / "runs" for source in sources):
        for folder in (path for path in run.iterdir() if path.is_dir()):
            folder.rename(tmp_path / folder.name)
    assert bfl(*merge) == 0, "data that are not known contradict none"
    shutil.rmtree(tmp_path / "all")
    _change(theirs[1], data=known)
    assert bfl(*merge) == 0, "the same data"
    shutil.rmtree(tmp_path / "all")
    _change(theirs[1], data={**known, kind: 64 * "b"})
    commands = (merge, ("table", file, "--output", tmp_path / "new", *_from(sources)))
    for command in commands:
        assert bfl(*command) == 2
        said = capsys.readouterr().err
        assert all(str(path) in said for path in theirs)
        assert f"the {kind} images or labels" in said
        assert known[kind][:12] in said
        assert 12 * "b" in said
    assert not (tmp_path / "all").exists()


def _from(places: list[Path]) -> list[Any]:
    return [word for place in places for word in ("--results", place)]


def test_images_drawn_for_the_server_differ_by_the_seed_and_other_data_sets_by_name() -> None:
    def result(dataset: str, seed: int, **data: str) -> tuple[str, RunResult]:
        configuration = {"dataset": dataset, "seed": seed, "server-data": "digits"}
        return dataset, RunResult(
            name="run",
            configuration=configuration,
            metrics={},
            rounds=(),
            retention={},
            seconds=0.0,
            partition="",
            environment={},
            data=data,
            source=Path(f"{dataset}-{seed}-{data.get('server', '')}"),
        )

    one = result("mnist", 0, train="a", server="s")
    assert not different_data([one, result("mnist", 1, train="a", server="t")])
    assert not different_data([one, result("cifar10", 0, train="b", server="s")])
    said = different_data([one, result("mnist", 0, train="a", server="t")])
    assert len(said) == 1
    assert "server-data 'digits'" in said[0]
    assert "mnist-0-s" in said[0]
    assert "mnist-0-t" in said[0]


def _images(folder: Path, train: int) -> None:
    images = np.random.default_rng(0).integers(0, 255, (train, 16, 16), np.uint8)
    labels = np.arange(train) % 4
    np.savez(folder / "images.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)


def test_runs_that_are_one_computation_are_made_once(
    tmp_path: Path, engine: PretendingEngine, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _images(tmp_path, 90)
    file = write_study(tmp_path / "files", WEIGHTED, None)
    assert bfl("study", file, "--shard", "1/1") == 0
    made = [name for name, _ in engine.asked]
    # Three clients of 30 images each are equal under iid; not so under a Dirichlet partition.
    assert len(made) == 5
    printed = capsys.readouterr().out
    assert "iid_train-size_seed-0: the same computation as iid_equal_seed-0, made once" in printed
    result = read_result(tmp_path / "runs" / "small" / "runs" / "iid_train-size_seed-0.json")
    assert result.made_as == "iid_equal_seed-0"
    assert result.configuration["weighting"] == "train-size"
    assert bfl("table", "runs/small") == 0
    printed = capsys.readouterr().out
    assert "6 of 6 runs are done" in printed
    assert "made once: iid_train-size_seed-0 = iid_equal_seed-0." in printed
    engine.asked.clear()
    assert bfl("study", file) == 0
    assert engine.asked == []


@pytest.mark.parametrize("order", [("equal", "train-size"), ("train-size", "equal")])
def test_runs_that_are_one_computation_are_made_once_in_two_calls_as_well(
    order: tuple[str, str],
    tmp_path: Path,
    engine: PretendingEngine,
    capsys: Output,
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
    assert f"{second}: the same computation as {first}, made once" in capsys.readouterr().out
    runs = tmp_path / "runs" / "small" / "runs"
    assert read_result(runs / f"{second}.json").made_as == first
    assert bfl("table", file, *theirs) == 0
    assert f"made once: {second} = {first}." in capsys.readouterr().out
    # Both are there: none takes over the other's.
    assert bfl("study", file, "--only", "iid_", "--shard", "1/1", *theirs) == 0
    assert [name for name, _ in engine.asked] == [first, "iid_distance_seed-0"]
    assert read_result(runs / f"{first}.json").made_as == ""


def test_clients_of_unequal_size_make_two_computations(
    tmp_path: Path, engine: PretendingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _images(tmp_path, 91)
    assert bfl("study", write_study(tmp_path / "files", WEIGHTED, None), "--only", "iid_") == 0
    assert len(engine.asked) == 3


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
            once = computation(other, [size] * 39) == computation(equal, [size] * 39)
            assert once == same, (name, size)
    train_size = resolve({"weighting": "train-size", "clients": 3})
    assert computation(train_size, [5, 5, 5]) == computation(
        resolve({"weighting": "equal", "clients": 3}), [5, 5, 5]
    )
    assert computation(train_size, [5, 5, 4]) != computation(train_size, [5, 5, 5])
    assert computation(train_size, []) != computation(train_size, [5, 5, 5])
