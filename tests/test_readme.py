import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bfl import study
from bfl.aggregation.pooling import pooling_rules
from bfl.configuration import resolve
from bfl.configuration.settings import parse_pairs

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

NAMED = re.compile(
    r"(?<![\w./-])((?:bfl|strategies|clients|tests|scripts|configs|docs|benchmarks)/[\w./-]*[\w/])"
)
GIVEN = re.compile(r"(?:--run-config|-c) '([^']+)'")
OF_AN_EXAMPLE = ("test_power_of_size.py", "harmonic_mean_of_variances.py")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_and_pictures_are_there(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.slow
def test_the_site_has_every_page_and_no_broken_link(tmp_path: Path) -> None:
    """Anchors too. The site has no folder of the checkout: links to these are tested above."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "search" / "search_index.json").exists()


def test_the_readme_is_short() -> None:
    assert len(PAGES[0].read_text(encoding="utf-8").splitlines()) <= 120


@pytest.mark.of_bfls_own
def test_what_the_readme_says_of_rules_is_what_was_measured() -> None:
    folder = ROOT / "docs" / "results" / "which-rule-digits-picked"
    frame = study(folder).results.frame.query("partition == 'dirichlet-0.5'").groupby("method")
    prices = json.loads((folder / "price.json").read_text(encoding="utf-8"))
    text = PAGES[0].read_text(encoding="utf-8")
    rows = re.findall(r"^\| `\"\w+\"`.*?, ([A-Z][^|]*) \|(.*±.*) \|$", text, re.MULTILINE)
    assert [method for method, _ in rows] == ["FedAvg", "FedAvg, 40 rounds", "IVON", "WS"]
    for method, shown in rows:
        group = frame.get_group(method)
        expected = [
            f"{scale * group[metric].mean():.{digits}f} ± {scale * group[metric].std():.{digits}f}"
            for metric, scale, digits in (
                ("accuracy", 100, 1),
                ("negative-log-likelihood", 1, 3),
                ("expected-calibration-error", 1, 3),
                ("ood-rotated-auroc", 1, 3),
            )
        ]
        assert [each.strip() for each in shown.split("|")] == [*expected, f"{prices[method]:.1f}"]


@pytest.mark.of_bfls_own
def test_the_table_of_rules_has_them_all() -> None:
    """But for those that a preset picks and nobody chooses, and user-defined parts."""
    text = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8").split("\n\n")
    lines = next(part for part in text if part.startswith("| rule |")).splitlines()[2:]
    named = {line.split("|")[1].strip().replace(" ", "-").lower() for line in lines}
    own = {cls.name for cls in pooling_rules.classes() if cls.__module__.startswith("bfl.")}
    assert named == own - {"factor-changes"}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_files_that_are_named_are_there(page: Path) -> None:
    """But for those of examples, and for names in capitals, which stand for others."""
    text = re.sub(r"```python\n# bfl/.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for name in NAMED.findall(text):
        if not name.endswith(OF_AN_EXAMPLE) and not re.search(r"[/-][A-Z]+(/|\.toml$|$)", name):
            assert (ROOT / name).exists(), name


def test_run_configurations_that_are_written_resolve() -> None:
    """In commands, with the keys and words that there are; the data need not be here."""
    found = [given for page in PAGES for given in GIVEN.findall(page.read_text(encoding="utf-8"))]
    for text in found:
        if text != "…" and "plugins=" not in text:
            resolve(parse_pairs(text), check_data=False)
    assert len(found) > 15
