"""Pages that scripts write say what the committed numbers say."""

import importlib
import json
from itertools import pairwise
from pathlib import Path

import pytest

from bfl.experiments.results.table import section_written

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
    rows = {row["name"]: row for row in numbers["rows"]}
    # What the page says of the rules: divided by K = 10 each round down to the floor, or kept.
    for name in ("WS", "conflation"):
        falls = rows[name]["sigma-by-round"]
        for before, after in pairwise(falls[:6]):
            assert before / after == pytest.approx(10**0.5, rel=0.05)
        assert falls[-1] == pytest.approx(1e-5, rel=1e-3)
    kept = [row for name, row in rows.items() if row["sigma-by-round"][-1] > 1e-3]
    assert len(kept) == len(rows) - 3
    likelihood = "negative-log-likelihood"
    assert all(row["numbers"][likelihood] > rows["WS"]["numbers"][likelihood] for row in kept)
    area = "retention-area-accuracy-epistemic"
    assert all(row["numbers"][area] < rows["WS"]["numbers"][area] for row in kept)


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


def test_monte_carlo_samples(load) -> None:
    script = load("monte_carlo_samples")
    numbers = json.loads(script.NUMBERS.read_text(encoding="utf-8"))
    text = script.PAGE.read_text(encoding="utf-8")
    assert script.page_with(text, numbers) == text, "python scripts/monte_carlo_samples.py --make"
    rows = {(row["rule"], row["samples"]): row for row in numbers["rows"]}
    assert rows.keys() == {(r, samples) for r in script.RULES for samples in script.SAMPLES}
    assert all(len(row[m]) == script.SETS_OF_DRAWS for row in rows.values() for m in script.METRICS)
    assert numbers["keys"] == dict(script.KEYS)
    # As the page says: for every set of draws, and not for the collapsed rule.
    *kept, collapsed = script.RULES
    for rule in kept:
        few, more, many = (rows[rule, samples] for samples in script.SAMPLES)
        assert max(few["accuracy"]) < min(more["accuracy"])
        assert min(few["negative-log-likelihood"]) > max(many["negative-log-likelihood"])
    accuracies = [a for samples in script.SAMPLES for a in rows[collapsed, samples]["accuracy"]]
    assert max(accuracies) - min(accuracies) < 2 / 360
