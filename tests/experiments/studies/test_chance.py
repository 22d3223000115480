"""Gains of sorting by an uncertainty stand beside what an order at random reaches by chance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from small_study import made_up_result, scaled_study

from bfl.experiments.studies.chance import against_chance, control_of
from bfl.experiments.studies.columns import Column
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.formats import markdown
from bfl.experiments.studies.run_result import write_result
from bfl.experiments.studies.table import StudyTable, study_table
from bfl.experiments.studies.verdicts import verdicts
from bfl.posteriors.floor import FRACTION_AT_FLOOR

GAIN = "retention-gain-accuracy-epistemic"
CONTROL = "retention-gain-accuracy-random"
POINTS = Column(metric=GAIN, scale=100.0, decimals=1)


def made(
    folder: Path, lines: Mapping[str, Sequence[float]], floors: Mapping[str, float] | None = None
) -> StudyTable:
    """Make a study whose methods have these gains by seed, each beside a control of 0.01."""
    seeds = list(range(max(map(len, lines.values()))))
    rows = "".join(f'[[rows]]\nlabel = {{ method = "{name}" }}\n' for name in lines)
    text = f'title = "Small"\n[base]\nrounds = 2\nclients = 3\n[axes]\nseed = {seeds}\n'
    text += f'[[columns]]\nmetric = "{GAIN}"\ntitle = "gain"\nscale = 100.0\ndecimals = 1\n{rows}'
    scaled = scaled_study(folder / "files", text=text, published=None)
    study = StudyFolder(folder / "study")
    for run in scaled.runs:
        method, seed = run.labels["method"], int(run.labels["seed"])
        rounds = [{"round": n, "accuracy": 0.5} for n in (1, 2)]
        if method in (floors or {}):
            shares = (0.0, (floors or {})[method])
            rounds = [{**r, FRACTION_AT_FLOOR: s} for r, s in zip(rounds, shares, strict=True)]
        numbers = {"accuracy": 0.5, GAIN: lines[method][seed], CONTROL: 0.01}
        result = made_up_result(run, metrics=numbers, rounds=tuple(rounds))
        write_result(study.result_file(run.name), result)
    return study_table(study, scaled)


def entries(table: StudyTable) -> list[str]:
    """Return what verdicts say of each line against an order at random."""
    entry = next(line for line in verdicts(table).splitlines() if "at random: " in line)
    assert entry.startswith("- gain, against an order at random: ")
    ends = entry.removeprefix("- gain, against an order at random: ").removesuffix(".")
    return ends.split("; WC ")[:1] + [f"WC {text}" for text in ends.split("; WC ")[1:]]


def test_verdicts_say_whether_gains_are_within_what_chance_reaches(tmp_path: Path) -> None:
    # A rule whose epistemic part is rounding noise gains nothing, or what chance gives.
    table = made(tmp_path, {"WS": (0.0, 0.012, -0.005), "WC": (0.10, 0.12, 0.11)})
    noise, known = entries(table)
    assert noise.startswith(
        "WS within two chance deviations (+0.2 where chance reaches ±2.0; in 0 of 3 runs beyond"
    )
    assert known.startswith(
        "WC beyond two chance deviations (+11.0 where chance reaches ±2.0; in 3 of 3 runs beyond; "
        "by the interval"
    )
    assert ": +9.0, +6.5 to +11.5, p = 0.25)" in known


def test_the_wrong_side_and_few_seeds(tmp_path: Path) -> None:
    errs, one = entries(made(tmp_path, {"WS": (-0.05, -0.07), "WC": (0.03, 0.0)}))
    assert errs.startswith("WS beyond two chance deviations, surest where it errs (-6.0 where ")
    assert "in 2 of 2 runs beyond" in errs
    # The mean alone does not make an order: one of two runs is beyond.
    assert one.startswith("WC within two chance deviations (+1.5")
    assert "in 1 of 2 runs beyond; not significant over the seeds: -0.5, " in one
    alone = entries(made(tmp_path / "alone", {"WS": (0.03,)}))[0]
    assert alone == (
        "WS beyond two chance deviations (+3.0 where chance reaches ±2.0; in 1 of 1 runs beyond)"
    )


def test_a_gain_that_is_not_finite_is_none(tmp_path: Path) -> None:
    said = entries(made(tmp_path, {"WS": (0.03, math.nan)}))[0]
    assert said == "WS no gain, as it is not finite in 1 of 2 runs"


@pytest.mark.parametrize(
    ("metric", "control"),
    [
        (GAIN, CONTROL),
        ("retention-gain-negative-log-likelihood-predictive-entropy", None),
        (CONTROL, ""),
        ("accuracy", ""),
    ],
)
def test_only_gains_have_a_control(metric: str, control: str | None) -> None:
    expected = "retention-gain-negative-log-likelihood-random" if control is None else control
    assert control_of(Column(metric=metric)) == expected
    if not expected:
        assert against_chance(Column(metric=metric), []) is None


def test_lines_at_the_floor_of_the_scales_are_named(tmp_path: Path) -> None:
    """An epistemic part that is the floor's is above rounding noise, and may sort by chance."""
    table = made(tmp_path, {"WS": (0.10, 0.12), "WC": (0.10, 0.12)}, floors={"WS": 0.97, "WC": 0.5})
    floored, other = entries(table)
    assert floored.endswith(", 97% of the standard deviations at scale-floor")
    assert "scale-floor" not in other
    note = "In the last evaluated round, of seeds on average: WS 97% of the standard deviations at"
    assert note in markdown(table)
    share = Column(metric=FRACTION_AT_FLOOR)
    assert [table.pairing.values(cell, share) for _, c in table.pairing.groups() for cell in c] == [
        [0.97, 0.97],
        [0.5, 0.5],
    ]
    assert "scale-floor" not in markdown(made(tmp_path / "b", {"WS": (0.1,)}))


def test_results_keep_the_share_at_the_floor(tmp_path: Path) -> None:
    from bfl.configuration import resolve
    from bfl.experiments.results.run_folder import RunFolder
    from bfl.experiments.studies.run_result import read_result, result_of

    folder = RunFolder.create(tmp_path, "run", resolve({"rounds": 1}).values, {})
    folder.append_round({"round": 1, "accuracy": 0.5, FRACTION_AT_FLOOR: 0.75})
    folder.write_metrics({"accuracy": 0.5})
    write_result(tmp_path / "run.json", result_of(folder, "run"))
    assert read_result(tmp_path / "run.json").number(FRACTION_AT_FLOOR) == 0.75
