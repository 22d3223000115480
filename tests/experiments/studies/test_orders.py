"""Orders that a study expects, against results in which they hold, do not, or are not decided."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_study import STUDY, finish_run, scaled_study

from bfl.commands.main import main
from bfl.errors import ConfigurationError
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.orders import LEVEL, declared_orders, permutation_p, verdicts
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
SECTIONS = """<!-- verdicts study -->
<!-- end of verdicts -->
<!-- figures study -->
<!-- end of figures -->
"""
TEXT = STUDY.replace("seed = [0, 1]", "seed = [0, 1, 2, 3, 4, 5]").split("[published]")[0]
TEXT = "\n".join(line for line in TEXT.splitlines() if not line.startswith("published")) + ORDERS
BETTER = [0.90, 0.91, 0.92, 0.93, 0.94, 0.95]
WORSE = [0.80, 0.82, 0.79, 0.81, 0.83, 0.845]


def made(folder: Path, ws: list[float], nwa: list[float], text: str = TEXT) -> StudyTable:
    """Make a study of two rules with these accuracies by seed, with IID data."""
    scaled = scaled_study(folder / "files", text=text)
    study = StudyFolder(folder / "study")
    study.begin(scaled, {}, {})
    for run in scaled.runs:
        numbers = {"WS": ws, "NWA": nwa}[run.labels["rule"]]
        seed = int(run.labels["seed"])
        if run.labels["partition"] == "iid" and seed < len(numbers):
            # Of log-likelihoods too the lesser number is the better one.
            each = {"accuracy": numbers[seed], "negative_log_likelihood": 1 - numbers[seed]}
            finish_run(study, run.name, run.values, **each)
    return study_table(study, scaled)


@pytest.mark.parametrize(
    ("ws", "nwa", "found"),
    [
        (BETTER, WORSE, "found (+"),
        (WORSE, BETTER, "not found (-"),
        (BETTER[:5], WORSE[:5], "suggestive (+"),
        (WORSE[:5], BETTER[:5], "suggestive of the reverse (-"),
        ([0.91, 0.9], [0.9, 0.89], "within what test images tell (+"),
        (BETTER[:3], [0.8, 0.92, 0.81], "seeds differ (+"),
        (BETTER, [*BETTER[1:], BETTER[0]], "not found (+0"),
    ],
)
def test_a_declared_order_is_found_or_not(
    ws: list[float], nwa: list[float], found: str, tmp_path: Path
) -> None:
    table = made(tmp_path, ws, nwa)
    line, _ = [x for x in verdicts(table.pairing).splitlines() if "better than" in x]
    assert line.startswith(f"  - iid WS better than NWA: {found}")
    assert f"over {len(ws)} seeds" in line
    assert "by images" in line
    after = TEXT.replace('better = { rule = "WS" }', 'better = { rule = "WS" }\nbeforehand = false')
    orders = declared_orders([made(tmp_path / "after", ws, nwa, after).pairing])
    assert "found" not in {order.verdict for order in orders}


def test_runs_without_a_number_count_against_their_line() -> None:
    """Those that have got through are not compared alone."""
    numbers = np.array([[5.0] * 8, [6.0, 7.0, *[-np.inf] * 6]])
    assert permutation_p(numbers[::-1]) > 0.5
    assert permutation_p(np.where(np.isinf(numbers), -np.inf, [[8.0], [7.0]])) < 0.05
    assert permutation_p(np.full((2, 6), -np.inf)) == 1.0


@pytest.mark.parametrize("shared", [0.0, 1.0])
@pytest.mark.parametrize("tails", ["normal", "lognormal"])
@pytest.mark.parametrize("orders", [1, 9])
def test_a_page_of_orders_that_are_none_claims_one_at_most_at_the_level(
    shared: float, tails: str, orders: int
) -> None:
    """Equal lines of the same six seeds, each to be better than the last, on 300 pages."""
    draw, claims = getattr(np.random.default_rng(5), tails), 0
    for _ in range(300):
        *lines, last = draw(size=(orders + 1, 6)) + shared * draw(size=6)
        if orders > 1:  # of that with the greatest rank sum the p-value is the least
            lines = [max(lines, key=lambda each: (each[:, None] > last).sum())]
        p_value = permutation_p(np.array([lines[0], last]), orders)
        claims += orders * p_value <= LEVEL  # Holm's first step
    assert claims <= 300 * LEVEL + 2 * (300 * LEVEL) ** 0.5


def test_orders_are_corrected_over_all_studies_of_a_page(tmp_path: Path) -> None:
    """An order of six seeds that is found alone is not found beside so many."""
    pairing = made(tmp_path, [*BETTER[:5], 0.99], [*WORSE[:5], 0.94]).pairing
    assert all(order.p_value <= LEVEL for order in declared_orders([pairing]))
    orders = declared_orders([pairing] * 25)
    assert {(order.declared, order.p_value <= LEVEL) for order in orders} == {(50, False)}


def test_an_order_in_one_setting_says_in_which(tmp_path: Path) -> None:
    """A paper may claim the one order of one partition and the reverse of another."""
    one = '{ rule = "WS", partition = "iid" }', '{ rule = "NWA", partition = "iid" }'
    text = TEXT.replace('{ rule = "WS" }', one[0]).replace('{ rule = "NWA" }', one[1])
    lines = verdicts(made(tmp_path, BETTER, WORSE, text).pairing).splitlines()
    expected = [line for line in lines if "better than" in line]
    assert len(expected) == 2
    assert all("iid WS better than NWA: found" in line for line in expected)


def test_a_list_of_names_stands_for_an_order_of_each(tmp_path: Path) -> None:
    metrics = '["accuracy", "negative-log-likelihood"]'
    both = (
        f'[[orders]]\nmetric = {metrics}\nbetter = {{ rule = "WS" }}\nworse = {{ rule = "NWA" }}\n'
    )
    assert scaled_study(tmp_path / "a", text=TEXT.replace(ORDERS, both)).study.orders == (
        scaled_study(tmp_path / "b", text=TEXT).study.orders
    )
    one = '{ partition = ["iid", "Dirichlet 0.5"], rule = "WS" }'
    each = f'[[orders]]\nmetric = "accuracy"\nbetter = {one}\nworse = {{ rule = ["NWA"] }}\n'
    orders = scaled_study(tmp_path / "c", text=TEXT.replace(ORDERS, each)).study.orders
    assert [(order.better, order.worse) for order in orders] == [
        ({"partition": "iid", "rule": "WS"}, {"rule": "NWA"}),
        ({"partition": "Dirichlet 0.5", "rule": "WS"}, {"rule": "NWA"}),
    ]


def test_several_orders_of_one_column_stand_each_in_a_line_below_it(tmp_path: Path) -> None:
    both = '[[orders]]\nmetric = "accuracy"\nbetter = { rule = "WS", partition = "iid" }\n' + (
        'worse = { rule = "NWA", partition = "iid" }\n'
    )
    other = both.replace("WS", "one").replace("NWA", "WS").replace("one", "NWA")
    text = verdicts(made(tmp_path, BETTER, WORSE, TEXT.replace(ORDERS, both + other)).pairing)
    lines = text.splitlines()
    at = lines.index("- accuracy (%):")
    assert lines[at + 1].startswith("  - iid WS better than NWA: found")
    assert lines[at + 2].startswith("  - iid NWA better than WS: not found")


def test_orders_of_several_lines_say_of_which_line_each_is(tmp_path: Path) -> None:
    """Of one line "Dirichlet 0.5 better than iid" is enough; of two it would stand there twice."""
    order = '[[orders]]\nmetric = "accuracy"\nbetter = {{ rule = "{}", partition = "iid" }}\n' + (
        'worse = {{ partition = "Dirichlet 0.5" }}\n'
    )
    one = verdicts(
        made(tmp_path / "a", BETTER, WORSE, TEXT.replace(ORDERS, order.format("WS"))).pairing
    )
    assert "  - iid better than Dirichlet 0.5: " in one
    both = TEXT.replace(ORDERS, "".join(map(order.format, ("WS", "NWA"))))
    lines = verdicts(made(tmp_path / "b", BETTER, WORSE, both).pairing).splitlines()
    at = lines.index("- accuracy (%):")
    assert lines[at + 1].startswith("  - WS iid better than Dirichlet 0.5: ")
    assert lines[at + 2].startswith("  - NWA iid better than Dirichlet 0.5: ")


def test_a_label_that_is_a_number_is_named_with_its_column(tmp_path: Path) -> None:
    text = TEXT.replace(', rule = "', ', clients = "3", rule = "').replace('"NWA" }\ns', '"X" }\ns')
    text = text.replace('clients = "3", rule = "X"', 'clients = "5", rule = "WS"')
    order = 'better = { clients = "3" }\nworse = { clients = "5" }\n'
    text = text.replace(ORDERS, f'[[orders]]\nmetric = "accuracy"\n{order}')
    scaled = scaled_study(tmp_path / "files", text=text)
    study = StudyFolder(tmp_path / "study")
    study.begin(scaled, {}, {})
    for run in scaled.runs:
        finish_run(study, run.name, run.values, accuracy=0.5 + int(run.labels["clients"]) / 100)
    said = verdicts(study_table(study, scaled).pairing)
    assert "iid clients 3 better than clients 5: not found" in said


def test_of_one_seed_no_expected_order_is_told(tmp_path: Path) -> None:
    text = verdicts(made(tmp_path, BETTER[:1], WORSE[:1]).pairing)
    said = [line for line in text.splitlines() if "better than" in line]
    assert len(said) == 2
    for line in said:
        why = "no order without two seeds in common."
        assert line == f"  - iid WS better than NWA: {why}"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('worse = { rule = "NWA" }', 'worse = { rule = "LP" }'), "no two lines of the table"),
        (('metric = "accuracy"\nbetter', 'metric = "brier"\nbetter'), "unknown column 'brier'"),
        (('worse = { rule = "NWA" }', 'worse = { rule = ["NWA", "LP"] }'), "no two lines .*'LP'"),
        (('better = { rule = "WS" }', "better = {}"), "better"),
        (('worse = { rule = "NWA" }', "worse = { rule = [] }"), r"orders.0.worse.rule"),
    ],
)
def test_an_order_of_lines_that_are_not_there_is_refused(
    change: tuple[str, str], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        scaled_study(tmp_path, text=TEXT.replace(*change))


@pytest.mark.parametrize("metric", ["degree-of-spread", "mean-epistemic", "epsilon"])
def test_an_order_in_a_column_without_a_better_side_is_refused(metric: str, tmp_path: Path) -> None:
    """It would be read as if lower were better."""
    column = f'[[columns]]\nmetric = "{metric}"\n'
    order = f'[[orders]]\nmetric = "{metric}"\n{ORDERS.split("[[orders]]")[1].split(chr(10), 2)[2]}'
    said = (
        f"orders: metric is '{metric}', a column without a better side; allowed: accuracy, "
        "negative-log-likelihood"
    )
    with pytest.raises(ConfigurationError, match=said):
        scaled_study(tmp_path, text=f"{TEXT}\n{column}\n{order}")
    scaled_study(tmp_path, text=f"{TEXT}\n{column}")


def test_one_command_writes_a_page_its_tables_and_its_figures(tmp_path: Path) -> None:
    text = TEXT + '\n[[figures]]\nname = "both"\nkind = "numbers"\n'
    scaled = scaled_study(tmp_path / "files", text=text)
    study = StudyFolder(tmp_path / "study")
    study.begin(scaled, {}, {})
    for run in scaled.runs[:4]:
        finish_run(study, run.name, run.values, accuracy=0.5)
    page = tmp_path / "page.md"
    page.write_text(SECTIONS, encoding="utf-8")
    assert main(["verdicts", str(page), "--write"]) == 0
    assert rewritten(page) == page.read_text(encoding="utf-8")
    assert "![Small](study/figures/both.png)" in page.read_text(encoding="utf-8")
    written = {path.relative_to(study.path).as_posix() for path in study.path.rglob("*")}
    assert {"table.md", "table.csv", "figures/both.png"} <= written
