"""Results that claim to be one run have the same curves, clients and partitions too."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_study import STUDY, made_up_result, scaled_study

from bfl.commands.main import main
from bfl.experiments.studies.contradictions import different_numbers
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.run_result import RunResult, read_result, write_result

ONE = "flipout-ws_iid_seed-0"


def curve(*points: float) -> tuple[dict[str, float], ...]:
    return tuple({"round": n, "accuracy": value} for n, value in enumerate(points, start=1))


def retention(*points: float) -> dict[str, Any]:
    curves = {"epistemic": {"area": 0.7, "value": list(points)}}
    return {"fraction": [0.5, 1.0], "curves": {"accuracy": curves}}


HONEST = RunResult(
    name=ONE,
    configuration={"rounds": 4, "seed": 0},
    metrics={"accuracy": 0.4, "negative-log-likelihood": float("nan")},
    rounds=curve(0.1, 1 / 3, float("nan"), 0.4),
    retention=retention(0.8, 0.4),
    seconds=4.0,
    partition=64 * "a",
    environment={"git-commit": "1", "numpy": "1"},
    clients={"0": {"best-better-accuracy": 1 / 3, "test-examples": 7}},
)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"rounds": curve(0.1, 0.35, float("nan"), 0.4)}, "accuracy of round 2"),
        ({"rounds": curve(0.1, 1 / 3, 0.3, 0.4)}, "accuracy of round 3"),
        ({"rounds": curve(0.1, 1 / 3, float("nan"))}, "evaluated rounds"),
        ({"partition": 64 * "b"}, "partition"),
        ({"clients": {"0": {"best-better-accuracy": 0.5}}}, "client 0 best-better-accuracy"),
        ({"retention": retention(0.9, 0.4)}, "retention curves accuracy epistemic value, point 0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_columns_and_figures_come_from_is_compared(change: dict[str, Any], name: str) -> None:
    other = replace(HONEST, **change)
    for commit in ("1", "2"):
        other = replace(other, environment={"git-commit": commit})
        assert name in different_numbers(HONEST, other)
        assert name in different_numbers(other, HONEST)


def test_honest_results_of_two_machines_do_not_contradict_each_other(tmp_path: Path) -> None:
    """Nor does the file of a result the run's folder, which has the curves with all digits."""
    theirs = replace(HONEST, seconds=9.0, environment={"git-commit": "1", "machine": "b"})
    assert not different_numbers(HONEST, theirs)
    write_result(tmp_path / "run.json", theirs)
    assert not different_numbers(HONEST, read_result(tmp_path / "run.json"))
    # Another version measures more, and does not say who holds which data.
    rows = tuple({**row, "expected-calibration-error": 0.1} for row in HONEST.rounds)
    later = replace(
        theirs,
        environment={"git-commit": "2"},
        rounds=rows,
        metrics={**HONEST.metrics, "new": 1.0},
        partition="",
        clients={},
        retention={**HONEST.retention, "gains": {"accuracy": {"random": 0.1}}},
    )
    assert not different_numbers(HONEST, later)


def test_of_a_shorter_run_the_rounds_are_those_of_the_longer_one() -> None:
    longer = replace(
        HONEST,
        configuration={"rounds": 6, "seed": 0},
        metrics={"accuracy": 0.9},
        rounds=curve(0.1, 1 / 3, float("nan"), 0.4, 0.8, 0.9),
        retention=retention(0.9, 0.9),
        clients={"0": {"best-better-accuracy": 0.9}},
    )
    assert not different_numbers(HONEST, longer)
    # The last round is judged in any case; in the longer run it may be none of every third.
    third = replace(longer, rounds=tuple(row for row in longer.rounds if row["round"] % 3 == 0))
    assert not different_numbers(HONEST, third)
    changed = replace(longer, rounds=curve(0.1, 0.3, float("nan"), 0.4, 0.8, 0.9))
    assert different_numbers(HONEST, changed) == {"accuracy of round 2": (0.3333333, 0.3)}


@pytest.mark.parametrize("rounds", [4, 2], ids=["as-many-rounds", "fewer-rounds"])
def test_contradicting_curves_are_refused_by_merge_and_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rounds: int
) -> None:
    scaled = scaled_study(tmp_path / "files", text=STUDY)
    run = next(run for run in scaled.runs if run.name == ONE)
    result = made_up_result(run)
    shorter = replace(
        result,
        configuration={**result.configuration, "rounds": rounds},
        rounds=curve(0.1, 0.25, 0.3, 0.4)[:rounds],
    )
    folders = [StudyFolder(tmp_path / place) for place in ("one", "two")]
    for folder, each in zip(folders, (result, shorter), strict=True):
        folder.begin(scaled, {}, {})
        write_result(folder.result_file(ONE), each)
    one, two = (str(folder.path) for folder in folders)
    assert main(["study", "merge", str(tmp_path / "all"), one, two]) == 2
    merged = capsys.readouterr().err
    assert not (tmp_path / "all").exists()
    assert main(["table", one, "--results", two]) == 2
    for said in (merged, capsys.readouterr().err):
        assert all(str(folder.result_file(ONE)) in said for folder in folders)
        assert "accuracy of round 2 is 0.2 and 0.25" in said
    write_result(folders[1].result_file(ONE), replace(shorter, rounds=result.rounds[:rounds]))
    assert main(["study", "merge", str(tmp_path / "all"), one, two]) == 0
    assert main(["table", one, "--results", two]) == 0
    assert json.loads((tmp_path / "all" / "runs" / f"{ONE}.json").read_text())["metrics"]


def test_keys_that_an_older_version_lacked_are_no_other_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In whichever folder the older result is, and if each version has a key of its own."""
    scaled = scaled_study(tmp_path / "files", text=STUDY)
    now = made_up_result(next(run for run in scaled.runs if run.name == ONE))

    def without(*keys: str) -> RunResult:
        kept = {key: value for key, value in now.configuration.items() if key not in keys}
        return replace(now, configuration=kept)

    old, older = without("server-threads"), without("channel-means", "mc-samples")
    other = replace(now, configuration={**now.configuration, "server-threads": 2})
    pairs = ((old, now), (now, old), (old, older), (older, old), (old, other), (other, old))
    for number, pair in enumerate(pairs):
        places = [str(tmp_path / f"{number}-{side}") for side in ("one", "two")]
        for place, result in zip(places, pair, strict=True):
            write_result(StudyFolder(Path(place)).result_file(ONE), result)
        merged = main(["study", "merge", str(tmp_path / f"{number}-all"), *places])
        said = capsys.readouterr().err
        assert merged == (2 if other in pair else 0), said
        if other in pair:
            values = [result.configuration.get("server-threads", 1) for result in pair]
            assert f"): server-threads is {values[0]} and {values[1]}\n" in said


def test_keys_that_a_private_result_lacks_are_filled_in_as_well(tmp_path: Path) -> None:
    """Its run allows no second asking, which results do not keep."""
    private = 'outgoing = "clip+noise"\nweighting = "equal"\nnormalization = "group"'
    text = STUDY.replace("clients = 3", f"clients = 3\nround-retries = 0\n{private}")
    now = made_up_result(scaled_study(tmp_path, text=text).runs[0])
    kept = {key: value for key, value in now.configuration.items() if key != "server-threads"}
    places = [tmp_path / side for side in ("one", "two")]
    for place, configuration in zip(places, (now.configuration, kept), strict=True):
        result = replace(now, configuration=configuration)
        write_result(StudyFolder(place).result_file(now.name), result)
    assert main(["study", "merge", str(tmp_path / "all"), *map(str, places)]) == 0
