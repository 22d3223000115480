"""Claims against results in which they hold, do not, or cannot be decided."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from small_study import STUDY, bfl, finish_run, made_study, write_study

from bfl.errors import ConfigurationError
from bfl.experiments.studies.claims import LEVEL, check_seeds, claims, holm, p_value
from bfl.experiments.studies.results import StudyFolder
from bfl.experiments.studies.study import Run, Study, read_study
from bfl.experiments.studies.table import StudyTable

CLAIMS = """
[[claims]]
metric = "accuracy"
better = { rule = "WS" }
worse = { rule = "NWA" }

[[claims]]
metric = "negative-log-likelihood"
better = { rule = "WS" }
worse = { rule = "NWA" }
"""
TEXT = STUDY.replace("seed = [0, 1]", "seed = [0, 1, 2, 3, 4, 5, 6]").split("[published]")[0]
TEXT = "\n".join(line for line in TEXT.splitlines() if not line.startswith("published"))
TEXT = TEXT.replace(', { label = "Dirichlet 0.5", partition = "dirichlet", alpha = 0.5 }', "")
BETTER = [0.90, 0.91, 0.92, 0.93, 0.94, 0.95, 0.96]
WORSE = [0.80, 0.82, 0.79, 0.81, 0.83, 0.845, 0.82]


def made(folder: Path, ws: list[float], nwa: list[float], claimed: str = CLAIMS) -> StudyTable:
    """Return the table of a study of two rules with these accuracies by seed."""

    def finish(place: StudyFolder, run: Run) -> None:
        numbers, seed = {"WS": ws, "NWA": nwa}[run.labels["rule"]], int(run.labels["seed"])
        if seed < len(numbers):
            # Of log-likelihoods too the lesser number is the better one.
            curve = [{"accuracy": BETTER[seed]}]
            finish_run(
                place, run, curve, accuracy=numbers[seed], negative_log_likelihood=1 - numbers[seed]
            )

    return made_study(folder, finish, TEXT + claimed)


@pytest.mark.parametrize(
    ("ws", "nwa", "verdict"),
    [
        (BETTER, WORSE, "found"),
        (WORSE, BETTER, "contradicted"),
        (BETTER[:6], WORSE[:6], "open"),  # two claims need seven seeds
        (BETTER, [*BETTER[1:], BETTER[0]], "open"),
        (BETTER, [*WORSE[:6], 0.97], "open"),  # one seed disagrees
        (BETTER[:1], WORSE[:1], "open"),
    ],
)
def test_verdicts(ws: list[float], nwa: list[float], verdict: str, tmp_path: Path) -> None:
    accuracy, likelihood = claims({"study": made(tmp_path, ws, nwa)}).itertuples()
    assert accuracy.verdict == likelihood.verdict == verdict
    assert accuracy.seeds == len(ws)
    assert accuracy.ours == pytest.approx(100 * (np.mean(ws) - np.mean(nwa)))
    assert likelihood.ours == pytest.approx(-accuracy.ours / 100)
    assert bool(accuracy.reason) == (len(ws) < 7)
    after = CLAIMS.replace("worse =", "beforehand = false\nworse =")
    found = claims({"study": made(tmp_path / "after", ws, nwa, after)})
    assert set(found.verdict) == {"open"}
    assert found.p.isna().all()


def test_the_interval_is_students(tmp_path: Path) -> None:
    row = claims({"": made(tmp_path, BETTER, WORSE)}).iloc[0]
    differences = 100 * (np.array(BETTER) - np.array(WORSE))
    half = stats.t.ppf(0.975, 6) * differences.std(ddof=1) / np.sqrt(7)
    assert row.low == pytest.approx(differences.mean() - half)
    assert row.high == pytest.approx(differences.mean() + half)


def test_the_test_is_that_of_all_sign_flips() -> None:
    draw = np.random.default_rng(3)
    for seeds in (1, 4, 6, 9):
        differences = draw.normal(0.5, size=seeds).round(2)
        flips = np.array(list(itertools.product((1, -1), repeat=seeds)))
        sums = np.abs(flips @ differences)
        by_hand = (sums >= abs(differences.sum()) - 1e-9).mean()
        assert p_value(differences) == pytest.approx(by_hand)
        assert p_value(-differences) == pytest.approx(by_hand)
    assert p_value(np.zeros(8)) == p_value(np.zeros(0)) == 1.0
    many = p_value(draw.normal(1.0, size=20))
    assert many < 0.01
    assert p_value(draw.normal(0.0, size=20)) > 0.02


def test_a_run_without_a_number_counts_against_its_line(tmp_path: Path) -> None:
    """As far as the furthest other: those that have got through are not compared alone."""
    diverged = [float("nan"), *WORSE[1:]]
    accuracy, likelihood = claims({"": made(tmp_path, BETTER, diverged)}).itertuples()
    assert accuracy.verdict == likelihood.verdict == "found"
    assert np.isnan(accuracy.ours)
    both = claims({"": made(tmp_path / "both", [float("nan")] * 7, [float("nan")] * 7)})
    assert set(both.verdict) == {"open"}


@pytest.mark.parametrize("family", [1, 2, 3])
@pytest.mark.parametrize("spread", [1.0, 10.0])
def test_at_most_one_study_in_twenty_finds_what_is_not(family: int, spread: float) -> None:
    """Two lines of seven seeds for each claim, neither of which is better."""
    draw, studies, found = np.random.default_rng(5), 100, 0
    for _ in range(studies):
        runs = draw.normal(size=(family, 2, 7)) * [[1.0], [spread]]
        p_values = holm([p_value(one - other) for one, other in runs], family)
        found += (p_values <= LEVEL).any()
    assert found <= studies * LEVEL + 2 * (studies * LEVEL) ** 0.5


def test_holm_by_hand() -> None:
    assert holm([0.04, 0.01, 0.02, 0.5], 4) == pytest.approx([0.08, 0.04, 0.06, 0.5])
    assert holm([0.01, 0.02], 4) == pytest.approx([0.04, 0.06]), "two were declared and not made"
    assert holm([], 0).size == 0


def test_a_study_whose_seeds_cannot_carry_its_claims_is_refused(tmp_path: Path) -> None:
    def study(text: str, seeds: int) -> Study:
        axis = f"seed = {list(range(seeds))}"
        path = write_study(tmp_path, text.replace("seed = [0, 1, 2, 3, 4, 5, 6]", axis), None)
        return read_study(path)

    check_seeds(study(TEXT + CLAIMS, 7))
    with pytest.raises(ConfigurationError, match=r"6 seeds .* 2 claims; 7 can"):
        check_seeds(study(TEXT + CLAIMS, 6))
    after = (TEXT + CLAIMS).replace("worse =", "beforehand = false\nworse =")
    check_seeds(study(after, 1))


def test_a_line_is_compared_with_itself_in_two_columns(tmp_path: Path) -> None:
    column = '[[columns]]\nmetric = "best-accuracy"\nscale = 100.0\n'
    than = '[[claims]]\nmetric = "best-accuracy"\nbetter = { rule = "WS" }\nthan = "accuracy"\n'
    than += "published = 1.5\n"
    [row] = claims({"": made(tmp_path, WORSE, WORSE, f"\n{column}\n{than}")}).itertuples()
    assert (row.verdict, row.seeds, row.p, row.published) == ("found", 7, 2 / 2**7, 1.5)
    assert row.ours == pytest.approx(100 * (np.mean(BETTER) - np.mean(WORSE)))


def test_claims_are_printed_below_the_table(tmp_path: Path, capsys: Any) -> None:
    made(tmp_path, BETTER, WORSE)
    assert bfl("table", tmp_path / "small") == 0
    assert "| found |" in capsys.readouterr().out
