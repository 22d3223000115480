import re
from importlib.metadata import version
from pathlib import Path

import pytest

from bfl.configuration.strategies import named_strategy
from bfl.presets import presets

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

MEASURED = "benchmarks.md"
"""What it says was measured with the versions that it names."""


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_and_pictures_are_there(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_one_environment_is_stated() -> None:
    """One version of each package, the one that is installed where Flower fixes it."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES if page.name != MEASURED)
    words = " ".join(text.split())
    for package, title in (("flwr", "Flower"), ("ray", "Ray")):
        installed = ".".join(version(package).split(".")[:2])
        stated = set(re.findall(rf"\b{title} (\d+\.\d+)", words))
        assert stated == {installed}


def test_every_strategy_of_the_table_is_one() -> None:
    """And every preset stands in it, by name or alias."""
    (row,) = re.findall(r"^\| `strategy` \|(.*)$", PAGES[0].read_text(encoding="utf-8"), re.M)
    words = re.findall(r"`([\w-]+)`", row)
    named = {named_strategy(word).name for word in words}
    assert set(presets.names()) <= named
