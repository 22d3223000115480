"""Lines whose standard deviations are the floor's are named: what they know is the floor's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from small_study import made_up_result, scaled_study

from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.formats import markdown
from bfl.experiments.studies.run_result import write_result
from bfl.experiments.studies.table import StudyTable, study_table
from bfl.posteriors.floor import FRACTION_AT_FLOOR

GAIN = "retention-gain-accuracy-epistemic"
CONTROL = "retention-gain-accuracy-random"


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


def test_lines_at_the_floor_of_the_scales_are_named(tmp_path: Path) -> None:
    """An epistemic part that is the floor's is above rounding noise, and may sort by chance."""
    table = made(tmp_path, {"WS": (0.10, 0.12), "WC": (0.10, 0.12)}, floors={"WS": 0.97, "WC": 0.5})
    note = "In the last evaluated round, of seeds on average: WS 97% of the standard deviations at"
    assert note in markdown(table)
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
