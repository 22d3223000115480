"""Pages of results are what the committed results make of them."""

import re
import subprocess
from pathlib import Path

import pytest

from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.gathering import study_in
from bfl.experiments.studies.pages import rewritten

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
PAGES = [p for p in sorted(RESULTS.glob("*.md")) if "<!-- end -->" in p.read_text("utf-8")]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_current(page: Path) -> None:
    text, claims = rewritten(page)
    assert text == page.read_text("utf-8"), f"bfl verdicts {page} --write"
    assert (claims is not None) == page.with_suffix(".png").is_file()


def test_every_page_of_results_is_in_their_index() -> None:
    index = (RESULTS / "README.md").read_text("utf-8")
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", index))
    assert linked == {page.name for page in RESULTS.glob("*.md")} - {"README.md"}


def test_results_whose_commit_no_history_has_are_marked() -> None:
    """By ``scripts/mark_results.py``; where the whole history is here."""
    git = ["git", "-C", str(ROOT)]
    done = subprocess.run([*git, "rev-list", "HEAD"], capture_output=True, text=True, check=False)
    history = set(done.stdout.split())
    for folder in RESULTS.iterdir():
        for result in StudyFolder(folder).results().values() if folder.is_dir() else ():
            marked = result.environment.get("git-not-found", False)
            lost = result.environment["git-commit"] not in history
            assert marked <= lost, (folder.name, result.name)
            if len(history) > 100:  # neither a shallow clone nor a copy without any
                assert marked == lost, (folder.name, result.name)


def test_every_folder_of_a_study_is_read_by_itself() -> None:
    for path in RESULTS.glob("*/study.json"):
        assert study_in(StudyFolder(path.parent)).runs(), path
