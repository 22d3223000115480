"""Claims against results in which they hold, do not, or are not decided."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from small_study import STUDY, finish_run, scaled_study

from bfl.commands.main import main
from bfl.errors import ConfigurationError
from bfl.experiments.studies.claims import LEVEL, claims, holm, p_value
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.gathering import OpenedStudy, begin
from bfl.experiments.studies.pages import rewritten
from bfl.experiments.studies.table import StudyTable, study_table

ORDERS = """
[[orders]]
metric = "accuracy"
better = { rule = "WS" }
worse = { rule = "NWA" }

[[orders]]
metric = "negative-log-likelihood"
better = { rule = "WS" }
worse = { rule = "NWA" }
"""
TEXT = STUDY.replace("seed = [0, 1]", "seed = [0, 1, 2, 3, 4, 5]").split("[published]")[0]
TEXT = "\n".join(line for line in TEXT.splitlines() if not line.startswith("published")) + ORDERS
BETTER = [0.90, 0.91, 0.92, 0.93, 0.94, 0.95]
WORSE = [0.80, 0.82, 0.79, 0.81, 0.83, 0.845]


def made(folder: Path, ws: list[float], nwa: list[float], text: str = TEXT) -> StudyTable:
    """Make a study of two rules with these accuracies by seed, with IID data."""
    scaled = scaled_study(folder / "files", text=text)
    study = StudyFolder(folder / "study")
    begin(study, scaled, {})
    for run in scaled.runs():
        numbers = {"WS": ws, "NWA": nwa}[run.labels["rule"]]
        seed = int(run.labels["seed"])
        if run.labels["partition"] == "iid" and seed < len(numbers):
            # Of log-likelihoods too the lesser number is the better one.
            each = {"accuracy": numbers[seed], "negative_log_likelihood": 1 - numbers[seed]}
            finish_run(study, run.name, run.values, **each)
    return study_table(OpenedStudy(study, scaled))


def claimed(folder: Path, *args: Any) -> Any:
    return claims({"study": made(folder, *args)})


@pytest.mark.parametrize(
    ("ws", "nwa", "verdict"),
    [
        (BETTER, WORSE, "found"),
        (WORSE, BETTER, "contradicted"),
        (BETTER[:5], WORSE[:5], "suggestive"),
        (WORSE[:5], BETTER[:5], "suggestive reverse"),
        ([0.91, 0.9], [0.9, 0.89], "open"),  # within what test images tell
        (BETTER[:3], [0.501, 0.92, 0.5], "open"),  # seeds disagree, or are tied
        ([0.501, 0.92, 0.5], BETTER[:3], "open"),
        ([0.901, 0.5, 0.5], [0.901, 0.9, 0.9], "open"),
        ([0.901, 0.9, 0.9], [0.901, 0.5, 0.5], "open"),
        (BETTER, [*BETTER[1:], BETTER[0]], "open"),
        (BETTER[:1], WORSE[:1], "open"),
    ],
)
def test_verdicts(ws: list[float], nwa: list[float], verdict: str, tmp_path: Path) -> None:
    accuracy, likelihood = claimed(tmp_path, ws, nwa).itertuples()
    assert accuracy.verdict == verdict
    assert accuracy.seeds == len(ws)
    assert accuracy.ours == pytest.approx(100 * (np.mean(ws) - np.mean(nwa)))
    assert likelihood.ours == pytest.approx(-accuracy.ours / 100)
    after = TEXT.replace('better = { rule = "WS" }', 'better = { rule = "WS" }\nbeforehand = false')
    found = claimed(tmp_path / "after", ws, nwa, after)
    assert not {"found", "contradicted"} & set(found.verdict)


def test_the_interval_is_students(tmp_path: Path) -> None:
    row = claimed(tmp_path, BETTER, WORSE).iloc[0]
    differences = 100 * (np.array(BETTER) - np.array(WORSE))
    half = stats.t.ppf(0.975, 5) * differences.std(ddof=1) / np.sqrt(6)
    assert (row.low, row.high) == pytest.approx(
        (differences.mean() - half, differences.mean() + half)
    )


def test_all_runs_of_a_table_tell_the_number_of_images(tmp_path: Path) -> None:
    row = claimed(tmp_path, [0.9, 0.9], [0.501, 0.5]).iloc[0]
    by_line = [share * (1 - share) / 1000 for share in (0.9, 0.5005)]
    assert row.images == pytest.approx(100 * sum(by_line) ** 0.5)


@pytest.mark.parametrize("family", [1, 28])
def test_runs_without_a_number_count_against_their_line(family: int) -> None:
    """Those that have got through are not compared alone."""
    numbers = np.array([[5.0] * 8, [6.0, 7.0, *[-np.inf] * 6]])
    assert p_value(numbers[::-1], family) > 0.5
    assert p_value(np.where(np.isinf(numbers), -np.inf, [[8.0], [7.0]]), family) < 0.05
    assert p_value(np.full((2, 6), -np.inf), family) == 1.0
    if family > 1:  # Student's test takes the worst finite number for it
        sides = -np.array([[0.5, 0.6, 0.7, 0.8, 0.9, 0.4], [1.0, 1.1, 1.5, 2.0, 1.0, np.inf]])
        paired = stats.ttest_rel(sides[0], np.maximum(sides[1], -2.0), alternative="greater")
        assert p_value(sides, family) == pytest.approx(paired.pvalue)


@pytest.mark.parametrize(("family", "p"), [(1, 1 / 64), (3, 1 / 64), (4, 1 / 924), (28, 1 / 924)])
def test_a_larger_family_has_a_test_of_a_smaller_p_value(family: int, p: float) -> None:
    """2^-6 outlives the correction of three claims; then Student's test has to agree."""
    sides = np.array([[7.0, 8, 9, 10, 11, 12], [1, 2, 3, 4, 6, 5]])
    assert p_value(sides, family) == p
    assert p_value(sides[::-1], family) > 0.99
    one_far = np.array([[7.0, 8, 9, 10, 11, 1e3], [1, 2, 3, 4, 6, 5]])
    student = stats.ttest_rel(*one_far, alternative="greater").pvalue
    assert p_value(one_far, family) == pytest.approx(max(p, student) if family > 3 else p)


def as_they_are(runs: Any, draw: Any) -> Any:
    return runs


def of_unequal_spreads(runs: Any, draw: Any) -> Any:
    return runs * np.array([1.0, 10.0])[:, None]


def of_opposed_seeds(runs: Any, draw: Any) -> Any:
    """A seed that helps one line hurts the other."""
    first = draw.normal(size=(len(runs), 1, runs.shape[2]))
    return np.concatenate([first, -first], axis=1) + runs / 100


def one_run_in_ten_collapses(runs: Any, draw: Any) -> Any:
    return np.where(draw.random(runs.shape) < 0.1, -np.inf, runs)


@pytest.mark.parametrize("family", [1, 4])
@pytest.mark.parametrize(
    "equal", [as_they_are, of_unequal_spreads, of_opposed_seeds, one_run_in_ten_collapses]
)
def test_at_most_one_page_in_twenty_finds_what_is_not(equal: Any, family: int) -> None:
    """Two lines of six seeds for each claim of a page, neither of which is better."""
    draw, pages, found = np.random.default_rng(5), 40, 0
    for _ in range(pages):
        runs = equal(draw.normal(size=(family, 2, 6)), draw)
        found += (holm(p_value(sides, family) for sides in runs) <= LEVEL).any()
    assert found <= pages * LEVEL + 2 * (pages * LEVEL) ** 0.5


def test_holm_by_hand() -> None:
    assert holm([0.04, 0.01, 0.02, 0.5]) == pytest.approx([0.08, 0.04, 0.06, 0.5])
    assert holm([]).size == 0


def test_claims_are_corrected_over_all_studies_of_a_page(tmp_path: Path) -> None:
    """A claim of six seeds that is found alone is not found beside so many; a clear one is."""
    table = made(tmp_path, [*BETTER[:5], 0.99], [*WORSE[:5], 0.94])
    assert set(claims({"": table}).verdict) == {"found"}
    assert set(claims(dict.fromkeys(map(str, range(25)), table)).verdict) == {"open"}
    clear = made(tmp_path / "clear", BETTER, WORSE)
    assert set(claims(dict.fromkeys("abc", clear)).verdict) == {"found"}


def test_other_partitions_are_no_pairs(tmp_path: Path) -> None:
    table = made(tmp_path, BETTER, WORSE)
    for run, result in table.runs:
        other = run.labels["rule"] == "WS" and run.labels["seed"] in "01"
        object.__setattr__(result, "partition", "y" if other else "x")
    assert list(claims({"": table}).seeds) == [4, 4]


def test_a_list_of_names_stands_for_an_order_of_each(tmp_path: Path) -> None:
    one = '{ partition = ["iid", "Dirichlet 0.5"], rule = "WS" }'
    each = f'[[orders]]\nmetric = "accuracy"\nbetter = {one}\nworse = {{ rule = ["NWA"] }}\n'
    each += "published = [1.5, 2.5]\n"
    orders = scaled_study(tmp_path, text=TEXT.replace(ORDERS, each)).orders
    assert [(order.better, order.worse, order.published) for order in orders] == [
        ({"partition": "iid", "rule": "WS"}, {"rule": "NWA"}, 1.5),
        ({"partition": "Dirichlet 0.5", "rule": "WS"}, {"rule": "NWA"}, 2.5),
    ]
    found = claimed(tmp_path / "made", BETTER, WORSE, TEXT.replace(ORDERS, each))
    assert list(found.published) == [1.5]


def test_a_line_is_compared_with_itself_in_two_columns(tmp_path: Path) -> None:
    column = '[[columns]]\nmetric = "best-accuracy"\nscale = 100.0\n'
    than = '[[orders]]\nmetric = "best-accuracy"\nbetter = { rule = "WS" }\nthan = "accuracy"\n'
    table = made(tmp_path, WORSE, WORSE, TEXT.replace(ORDERS, f"{column}\n{than}"))
    for run, result in table.runs:
        best = BETTER[int(run.labels["seed"])]
        object.__setattr__(result, "rounds", ({"round": 1, "accuracy": best},))
    [row] = claims({"": table}).itertuples()
    assert (row.verdict, row.seeds, row.p) == ("found", 6, 1 / 64)
    assert row.ours == pytest.approx(100 * (np.mean(BETTER) - np.mean(WORSE)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('worse = { rule = "NWA" }', 'worse = { rule = "LP" }'), "no two lines of the table"),
        (('metric = "accuracy"\nbetter', 'metric = "brier"\nbetter'), "unknown column 'brier'"),
        (('worse = { rule = "NWA" }', 'worse = { rule = ["NWA", "LP"] }'), "no two lines .*'LP'"),
        (('better = { rule = "WS" }', "better = {}"), "better"),
        (('worse = { rule = "NWA" }', "worse = { rule = [] }"), r"orders.0.worse.rule"),
        (('worse = { rule = "NWA" }', ""), "either worse, other lines, or than"),
        (('worse = { rule = "NWA" }', 'than = "negative-log-likelihood"'), "than is 'negative"),
        (("[[orders]]", "[[orders]]\npublished = [1, 2]"), "published has 2 numbers"),
    ],
)
def test_an_order_of_lines_that_are_not_there_is_refused(
    change: tuple[str, str], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        scaled_study(tmp_path, text=TEXT.replace(*change))


@pytest.mark.parametrize("metric", ["degree-of-spread", "mean-epistemic", "epsilon"])
def test_an_order_in_a_column_without_a_better_side_is_refused(metric: str, tmp_path: Path) -> None:
    column = f'[[columns]]\nmetric = "{metric}"\n'
    order = f'[[orders]]\nmetric = "{metric}"\n{ORDERS.split("[[orders]]")[1].split(chr(10), 2)[2]}'
    with pytest.raises(ConfigurationError, match="without a better side"):
        scaled_study(tmp_path, text=f"{TEXT}\n{column}\n{order}")
    scaled_study(tmp_path, text=f"{TEXT}\n{column}")


def test_one_command_writes_a_page_its_tables_and_its_figures(tmp_path: Path) -> None:
    made(tmp_path, BETTER, WORSE, TEXT + '\n[[figures]]\nname = "both"\nkind = "numbers"\n')
    page = tmp_path / "page.md"
    page.write_text("<!-- claims study -->\n<!-- end -->\n<!-- table study -->\n<!-- end -->\n")
    assert main(["verdicts", str(page), "--write"]) == 0
    text = page.read_text(encoding="utf-8")
    assert rewritten(page)[0] == text
    assert "| found |" in text
    assert page.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    written = {path.relative_to(tmp_path / "study").as_posix() for path in tmp_path.rglob("*.*")
               if path.is_relative_to(tmp_path / "study")}  # fmt: skip
    assert {"table.md", "figures/both.png"} <= written
