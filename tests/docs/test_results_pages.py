"""Pages of results are what the committed results make of them."""

import importlib
import re
from pathlib import Path

import pandas as pd
import pytest

from bfl.configuration.sources import read_toml
from bfl.experiments.run.resume import configuration_hash
from bfl.experiments.studies.results import open_study
from bfl.experiments.studies.study import read_study

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
PAGES = [p for p in sorted(RESULTS.glob("*.md")) if "<!-- end -->" in p.read_text("utf-8")]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_current(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    text, plots = importlib.import_module("verdicts").rewrite(page)
    assert text == page.read_text("utf-8"), f"python scripts/verdicts.py {page}"
    made = {path.name for path in RESULTS.glob(f"{page.stem}*.png") if path.name in text}
    assert plots.keys() <= made


def test_every_page_of_results_is_in_their_index() -> None:
    index = (RESULTS / "README.md").read_text("utf-8")
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", index))
    assert linked == {page.name for page in RESULTS.glob("*.md")} - {"README.md"}


NAMES = {
    path: read_study(path).name
    for path in sorted((RESULTS.parents[1] / "configs").rglob("*.toml"))
    if "title" in read_toml(path)
}
STUDIES = sorted(path.parent for path in RESULTS.glob("*/study.toml"))


@pytest.mark.parametrize("folder", STUDIES, ids=lambda folder: folder.name)
def test_every_folder_of_a_study_is_read_by_itself_and_in_one_line(folder: Path) -> None:
    opened = open_study(folder)
    results = opened.results
    frame = pd.read_csv(folder / "runs.csv", index_col="run")
    assert set(results.frame.index) == set(frame.index)
    assert set(pd.read_csv(folder / "curves.csv")["run"]) <= set(frame.index)
    # The file in configs is still that of these runs, such as when a key has gone from it.
    [path] = [path for path, name in NAMES.items() if name == opened.study.name]
    digests = {run.name: configuration_hash(run.values) for run in read_study(path).runs}
    assert all(digests[name] == frame.configuration[name] for name in frame.index), path
