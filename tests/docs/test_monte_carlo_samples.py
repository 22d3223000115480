"""The page on Monte Carlo samples says what the committed numbers say."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "monte_carlo_samples.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    specification = importlib.util.spec_from_file_location(SCRIPT.stem, SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def numbers(script: ModuleType) -> Any:
    return json.loads(script.NUMBERS.read_text(encoding="utf-8"))


def test_the_page_has_the_numbers(script: ModuleType, numbers: Any) -> None:
    text = script.PAGE.read_text(encoding="utf-8")
    assert script.page_with(text, numbers) == text, "python scripts/monte_carlo_samples.py --make"
    assert {(row["rule"], row["samples"]) for row in numbers["rows"]} == {
        (rule, samples) for rule in script.RULES for samples in script.SAMPLES
    }
    assert all(
        len(row[m]) == script.SETS_OF_DRAWS for row in numbers["rows"] for m in script.METRICS
    )
    assert numbers["keys"] == dict(script.KEYS)


def test_few_samples_judge_too_low_what_has_kept_its_variance(
    script: ModuleType, numbers: Any
) -> None:
    """As the page says in words: for every set of draws, and not for the collapsed rule."""
    values = {(row["rule"], row["samples"]): row for row in numbers["rows"]}
    *kept, collapsed = script.RULES
    for rule in kept:
        few, more, many = (values[rule, samples] for samples in script.SAMPLES)
        assert max(few["accuracy"]) < min(more["accuracy"])
        assert min(few["negative-log-likelihood"]) > max(many["negative-log-likelihood"])
    accuracies = [a for samples in script.SAMPLES for a in values[collapsed, samples]["accuracy"]]
    assert max(accuracies) - min(accuracies) < 2 / 360
