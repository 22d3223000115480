"""Pages that scripts write say what the committed numbers say."""

import importlib
import json
from pathlib import Path

import pytest

from scripts.pages import section_written

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module


def test_variances(load) -> None:
    script = load("variances")
    text = script.PAGE.read_text(encoding="utf-8")
    numbers = json.loads(script.NUMBERS.read_text(encoding="utf-8"))
    assert script.page_with(text, numbers) == text, "python scripts/variances.py --write"


@pytest.mark.parametrize(
    ("name", "section", "rows"),
    [
        ("digits_hostile_clients", "accuracies", 70),
        ("rivals", "rivals", 18),
        ("shift", "shift", 15),
    ],
)
def test_tables(load, name: str, section: str, rows: int) -> None:
    script = load(name)
    assert section_written(text := script.PAGE.read_text("utf-8"), section, script.table()) == text
    assert len(script.table()) == 2 + rows
    if name == "shift":
        assert section_written(text, "foreign", script.foreign_table()) == text
