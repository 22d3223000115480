"""What the page of hostile clients says is what its runs have."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = "distributed-weight-consolidation"
BY_PRECISION = {"conflation", "weighted-conflation", "log-linear-pool"}
LIES = ("sign-flip", "noise", "small-variance")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = ROOT / "scripts" / "digits_hostile_clients.py"
    spec = importlib.util.spec_from_file_location("digits_hostile_clients", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


Accuracies = dict[tuple[str, str], dict[str, dict[str, float]]]
"""Of each rule under each attack, by defence and weighting."""


@pytest.mark.slow
def test_the_table_is_that_of_the_runs(script: ModuleType) -> None:
    text = script.PAGE.read_text("utf-8")
    shown = text.partition(script.BEGIN)[2].partition(script.END)[0].strip()
    assert shown == script.table(script.accuracies())
    assert len(shown.splitlines()) == 2 + 70
