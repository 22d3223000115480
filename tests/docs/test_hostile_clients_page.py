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


@pytest.fixture(scope="module")
def accuracy(script: ModuleType) -> dict[tuple[str, str], dict[str, dict[str, float]]]:
    """Return the accuracies by (defence, weighting), rule and attack."""
    found: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for (defence, rule, weighting), by_attack in script.accuracies().items():
        if rule != LEFT_OUT:
            found.setdefault((defence, weighting), {})[rule] = by_attack
    return found


def test_the_table_is_that_of_the_runs(script: ModuleType) -> None:
    text = script.PAGE.read_text("utf-8")
    shown = text.partition(script.BEGIN)[2].partition(script.END)[0].strip()
    assert shown == script.table(script.accuracies())
    assert len(shown.splitlines()) == 2 + 70


def test_without_a_defence(accuracy, script) -> None:  # type: ignore[no-untyped-def]
    for floor in ("undefended", "variance-floor"):
        for rule, by in accuracy[floor, "train-size"].items():
            assert max(by["sign-flip"], by["noise"]) <= 0.13
            assert by["small-variance"] <= (0.12 if rule in BY_PRECISION else 0.32)
            assert by["honest"] - by["echo"] < 0.01
    consolidation = {r: by for r, by in script.accuracies().items() if r[1] == LEFT_OUT}
    assert consolidation["undefended", LEFT_OUT, "train-size"]["honest"] < 0.11


def test_weights_by_distance(accuracy) -> None:  # type: ignore[no-untyped-def]
    for floor in ("undefended", "variance-floor"):
        for rule, by in accuracy[floor, "distance"].items():
            assert by["echo"] < 0.19
            for lie in LIES:
                if rule == "conflation":
                    assert by[lie] < 0.12
                elif (rule, lie) == ("population-pooling", "noise"):
                    assert f"{by[lie]:.3f}" == "0.567"
                else:
                    assert by[lie] >= 0.96


def test_weights_by_maximum_discrepancy(accuracy) -> None:  # type: ignore[no-untyped-def]
    for rule, by in accuracy["undefended", "max-discrepancy"].items():
        assert max(by["sign-flip"], by["echo"]) < 0.19
        if rule == "conflation":
            continue
        assert by["noise"] >= 0.96 or f"{by['noise']:.3f}" == "0.572"
        assert (by["noise"] < 0.96) == (rule == "population-pooling")
        assert (by["small-variance"] < 0.1) == (rule in BY_PRECISION)


def test_winsorization(accuracy) -> None:  # type: ignore[no-untyped-def]
    by_size = accuracy["winsorization", "train-size"].values()
    attacked = [by[attack] for by in by_size for attack in (*LIES, "echo")]
    assert (f"{min(attacked):.3f}", f"{max(attacked):.3f}") == ("0.964", "0.975")
    honest = [by["honest"] for by in by_size]
    assert (f"{min(honest):.3f}", f"{max(honest):.3f}") == ("0.969", "0.972")
    by_distance = accuracy["winsorization", "distance"].values()
    assert min(by["echo"] for by in by_distance) >= 0.925
