"""What the pages of results say in numbers is what their tables have."""

from __future__ import annotations

import csv
import json
import math
import re
import subprocess
from pathlib import Path

import pytest

from bfl.configuration import resolve
from bfl.configuration.sources import read_toml
from bfl.experiments.studies import read_study
from bfl.experiments.studies.extending import read_extended
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.formats import markdown
from bfl.experiments.studies.reading import study_in
from bfl.experiments.studies.study import Run
from bfl.experiments.studies.table import study_table

ROOT = Path(__file__).resolve().parents[2]
CONFIGS, RESULTS = ROOT / "configs", ROOT / "docs" / "results"


def _csv(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((RESULTS / name / "table.csv").read_text("utf-8").splitlines()))


def _page(name: str) -> tuple[str, list[list[str]]]:
    """Return a page's sentences on one line, and the cells of its table's rows."""
    text = (RESULTS / name).read_text("utf-8")
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return " ".join(text.split()), [row for row in rows[1:] if not row[0].startswith("-")]


GENERATED = re.compile(r"<!-- (table|verdicts|figures) \S+ -->\n(.*?)<!-- end of \1 -->", re.DOTALL)
PAGES = [p for p in sorted(RESULTS.glob("*.md")) if "<!-- end of verdicts" in p.read_text("utf-8")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_tells_of_orders_is_what_its_runs_have(page: Path) -> None:
    """Differences, which have a sign, and numbers of orders found; and nothing in older words."""
    text = page.read_text("utf-8")
    written = " ".join(match[2] for match in GENERATED.finditer(text))
    prose = " ".join(GENERATED.sub("", text).split())
    told = re.findall(r"(?<![\w.])[+-]\d+\.\d+", prose)
    assert [number for number in told if f"({number} " not in written] == []
    assert not re.search(r"significant|by the interval|exact test|at 95 %|reverse is found", prose)
    for number, orders in re.findall(r"(\d+) of these (\d+) orders are found", prose):
        assert int(number) == written.count(": found (")
        assert f"over the page's {orders};" in written


def test_every_page_of_results_is_in_their_index() -> None:
    index = (RESULTS / "README.md").read_text("utf-8")
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", index))
    assert linked == {page.name for page in RESULTS.glob("*.md")} - {"README.md"}


def test_results_whose_commit_no_history_has_are_marked() -> None:
    """By ``scripts/mark_results.py``; where the whole history is here."""
    git = ["git", "-C", str(ROOT)]
    done = subprocess.run([*git, "rev-list", "HEAD"], capture_output=True, text=True, check=False)
    history = set(done.stdout.split())
    for path in RESULTS.glob("*/runs/*.json"):
        environment = json.loads(path.read_text("utf-8"))["environment"]
        marked = environment.get("git-not-found", False)
        assert marked <= (environment["git-commit"] not in history), path
        if len(history) > 100:  # neither a shallow clone nor a copy without any
            assert marked == (environment["git-commit"] not in history), path


def test_the_distances_from_the_published_accuracies() -> None:
    said, _ = _page("studies.md")
    for partition, words in (
        ("iid", "{} to {} points below the published ones with IID data"),
        ("2-class", "{} to {} under the 2-class partition"),
    ):
        rows = [row for row in _csv("fischer2024-table2") if row["partition"] == partition]
        below = sorted(round(-float(row["accuracy_difference"])) for row in rows)
        assert words.format(below[0], below[-1]) in said


def test_why_the_updated_prior_has_so_many_steps() -> None:
    """A reason that no committed number carries is worded as a choice."""
    said, _ = _page("fischer2024.md")
    files = [CONFIGS / "fischer2024" / f"table5{reduced}.toml" for reduced in ("", "-digits")]
    (first, *_), (reduced, *_) = (read_study(file).runs() for file in files)
    steps, fewer = _steps(first, train_images=50_000), _steps(reduced, train_images=1437)
    assert f"{fewer} steps a round, where the paper makes {steps}." in said
    assert {read_study(file).least_steps for file in files} == {fewer}
    for text in (said, *(file.read_text("utf-8") for file in files)):
        assert "fall to chance" not in text
        assert " choice" in text
    copy = RESULTS / "fischer2024-table5-digits" / "study.toml"
    assert read_toml(copy) == read_extended(files[1]).tables


def test_the_steps_of_table_2_as_published_and_reduced() -> None:
    """The last batch of an epoch is a step too."""
    files = [CONFIGS / "fischer2024" / f"table2{name}.toml" for name in ("-fashion-mnist", "")]
    ours, papers = (_steps(read_study(f).runs()[0], train_images=50_000) for f in files)
    words = f"{ours} steps a round where the paper has {papers}"
    assert words in _page("fischer2024.md")[0]
    assert words in " ".join(files[0].read_text("utf-8").replace("#", "").split())
    copy = RESULTS / "fischer2024-table2-fashion-mnist" / "study.toml"
    assert read_toml(copy) == read_extended(files[0]).tables
    told = f"the paper's {papers} steps a round raise log σ by at most {papers / 1000:.2f}"
    assert told in _page("studies.md")[0]


def _steps(run: Run, train_images: int) -> int:
    """Return how many steps a client makes in a round of a run with data of equal sizes."""
    keys = resolve(dict(run.values), check_data=False).keys
    each = (keys.train_examples or train_images) / keys.clients
    return keys.local_epochs * math.ceil(each / keys.batch_size)


def test_which_accuracies_under_the_2_class_partition_are_above_chance() -> None:
    said, _ = _page("studies.md")
    rows = [row for row in _csv("fischer2024-table2") if row["partition"] == "2-class"]
    found = sorted(float(row["accuracy"]) for row in rows)
    assert f"{found[0]:.2f} to {found[-1]:.2f} %" in said
    assert "standard error of 0.7 points" in said
    assert round(100 * math.sqrt(0.1 * 0.9 / 2000), 1) == 0.7
    assert "nothing has been learned" not in said
    assert found[-1] > 10 + 3 * 0.7


def test_every_strategys_numbers_are_those_of_its_runs() -> None:
    said, shown = _page("digits-every-strategy.md")
    folder = StudyFolder(RESULTS / "digits-every-strategy")
    table = study_table(folder, study_in(folder))
    lines = [line for line in markdown(table).splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    assert shown == rows
    assert len(rows) == 40
    assert {line.done for line in table.lines} == {2}
    learned = {"client-gaussian", "conflation", "weighted-conflation", "weighted-sum-of-normals"}
    groups: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in table.seeds:
        strategy = row.labels["strategy"]
        kind = "learned" if strategy in learned else strategy[:11]
        kind = kind if kind in ("learned", "distributed") else "slow"
        accuracy, epistemic = (row.result.number(n) for n in ("accuracy", "mean-epistemic"))
        assert accuracy is not None
        assert epistemic is not None
        of_seed = groups.setdefault(kind, {}).setdefault(row.labels["seed"], [])
        of_seed.append((100 * accuracy, epistemic))
    accuracies = {
        kind: {seed: [a for a, _ in runs] for seed, runs in seeds.items()}
        for kind, seeds in groups.items()
    }
    for kind, words in (
        ("learned", "have {:.0f} to {:.0f} % after six"),
        ("slow", "{:.0f} to {:.0f} % and"),
        ("distributed", "the result is {:.0f} to {:.0f} %, which is chance"),
    ):
        every = [accuracy for runs in accuracies[kind].values() for accuracy in runs]
        assert words.format(min(every), max(every)) in said
    for seed in ("0", "1"):
        assert min(accuracies["learned"][seed]) > max(accuracies["slow"][seed])
        assert max(epistemic for _, epistemic in groups["learned"][seed]) < 0.00305
        assert min(epistemic for _, epistemic in groups["slow"][seed]) > 0.11
        # Of 360 images and a tenth right by chance: two standard deviations are 3.2 points.
        assert max(accuracies["distributed"][seed]) < 13.2
    assert "at most 0.003 in the first group, and at least 0.11 in the second" in said


def test_the_epistemic_parts_beside_partitioned_variational_inference() -> None:
    said, _ = _page("partitioned-variational-inference-digits.md")
    rows = {row["method"]: row for row in _csv("partitioned-variational-inference-digits")}
    means = [float(rows[name]["mean-epistemic"]) for name in ("WS", "conflation")]
    assert "{:.0e} and {:.0e} on average".format(*means).replace("e-09", "e-9") in said
