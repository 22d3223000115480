"""Orders of one line's numbers in two columns: is the ensemble better than the model?"""

from __future__ import annotations

from pathlib import Path

import pytest
from small_study import finish_run, scaled_study
from test_orders import BETTER, ORDERS, TEXT, WORSE

from bfl.commands.main import main
from bfl.errors import ConfigurationError
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.orders import declared_orders, verdicts
from bfl.experiments.studies.run_result import short
from bfl.experiments.studies.table import StudyTable, study_table

COLUMN = '[[columns]]\nmetric = "best-accuracy"\ntitle = "best (%)"\nscale = 100.0\ndecimals = 2\n'
THAN = '[[orders]]\nmetric = "best-accuracy"\nbetter = { rule = "WS" }\nthan = "accuracy"\n'
OF_COLUMNS = TEXT.replace(ORDERS, f"{COLUMN}\n{THAN}")


def made(folder: Path, accuracies: list[float], best: list[float]) -> StudyTable:
    scaled = scaled_study(folder / "files", text=OF_COLUMNS)
    study = StudyFolder(folder / "study")
    study.begin(scaled, {}, {})
    for run in scaled.runs:
        seed = int(run.labels["seed"])
        if run.labels["partition"] == "iid" and seed < len(best):
            finish_run(study, run.name, run.values, accuracy=accuracies[seed])
    return study_table(study, scaled)


def test_a_line_is_compared_with_itself_in_two_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pairs are those of each seed, as between two lines; a tie is no order."""
    from bfl.experiments.studies.run_result import RunResult

    number = RunResult.number
    best = dict(zip(WORSE, BETTER, strict=True))
    monkeypatch.setattr(
        RunResult,
        "number",
        lambda run, name: (
            best[run.metrics["accuracy"]] if name == "best-accuracy" else number(run, name)
        ),
    )
    text = verdicts(made(tmp_path, WORSE, BETTER).pairing)
    (line,) = [line for line in text.splitlines() if "better than" in line]
    assert line.startswith("  - WS iid best (%) better than accuracy (%): found (")
    mean = 100 * (sum(BETTER) - sum(WORSE)) / 6
    assert f"(+{mean:.2f} ± " in line
    assert "6 seeds, p = 0.016" in line


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('than = "accuracy"', 'than = "brier"'), "than is 'brier'; allowed: another column"),
        (('than = "accuracy"', 'than = "best-accuracy"'), "than is 'best-accuracy'"),
        (('than = "accuracy"', 'than = "negative-log-likelihood"'), "than is 'negative-log"),
        (("scale = 100.0\ndecimals = 2\n\n[[orders]]", "\n[[orders]]"), "and the scale that"),
        (('than = "accuracy"', ""), "either worse, other lines, or than"),
        (("than =", 'worse = { rule = "NWA" }\nthan ='), "either worse, other lines, or than"),
        (('{ rule = "WS" }', '{ rule = "LP" }'), "no two lines"),
    ],
)
def test_what_is_no_such_order_is_refused(
    change: tuple[str, str], said: str, tmp_path: Path
) -> None:
    assert change[0] in OF_COLUMNS
    with pytest.raises(ConfigurationError, match=said):
        scaled_study(tmp_path, text=OF_COLUMNS.replace(*change))


def test_the_digits_that_curves_lack_are_no_difference(tmp_path: Path) -> None:
    """The best round's accuracy is that of the last: of six ties nothing is told."""
    accuracies = [right / 360 for right in (302, 303, 307, 308, 311, 313)]
    table = made(tmp_path, accuracies, accuracies)
    pairing = table.pairing
    cell = next(c for c in pairing.study.cells() if c.labels["partition"] == "iid")
    curves = [short(number) for number in accuracies]
    assert curves != accuracies
    for result, number in zip(pairing.results(cell), curves, strict=True):
        object.__setattr__(result, "rounds", ({"round": 1, "accuracy": number},))
    [order] = declared_orders([pairing])
    assert (order.seeds, order.p_value, order.verdict) == (6, 1.0, "not found")


@pytest.mark.parametrize(
    ("rounds", "every", "scale", "said"),
    [
        (10, 5, "", ""),
        (10, 4, "", "does not evaluate round 5; allowed: a multiple of evaluate-every (4)"),
        (4, 1, "", "up to rounds (4)"),
        (10, 0, "", "does not evaluate round 5"),
        (10, 5, "rounds=2", ""),
    ],
)
def test_a_number_of_a_round_that_is_not_evaluated_is_refused(
    rounds: int,
    every: int,
    scale: str,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Before the first run; with fewer rounds than the file's the column is empty."""
    path = tmp_path / "study.toml"
    column = '[[columns]]\nmetric = "accuracy-at-round-5"\n'
    base = f"[base]\nrounds = {rounds}\nevaluate-every = {every}\n"
    path.write_text(f'title = "Rounds"\n{base}{column}', encoding="utf-8")
    options = ["--dry-run", "--backend", "serial", "--output", str(tmp_path / "runs")]
    code = main(["study", str(path), *options, *(["--scale", scale] if scale else [])])
    told = " ".join(capsys.readouterr().err.split())
    assert (code == 0) == (not said)
    assert said in told
