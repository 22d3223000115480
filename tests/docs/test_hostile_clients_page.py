"""What the page of hostile clients says is what its runs have."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from bfl.aggregation.pooling import pooling_rules

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


@pytest.fixture(scope="module")
def of_seeds(script: ModuleType) -> dict[str, Accuracies]:
    """Return the accuracies of the single runs by seed; every rule but the one left out."""
    found: dict[str, Accuracies] = {}
    with (script.PAGE.with_suffix("") / "seeds.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            rule = pooling_rules.get(row["strategy"]).name
            by_rule = found.setdefault(row["seed"], {}).setdefault(
                (row["defence"], row["weighting"]), {}
            )
            by_rule.setdefault(rule, {})[row["attack"]] = float(row["accuracy"])
    return found


@pytest.fixture(scope="module", params=["0", "1"])
def accuracy(of_seeds: dict[str, Accuracies], request: pytest.FixtureRequest) -> Accuracies:
    """Return the accuracies of one seed's runs."""
    return {
        key: {rule: by for rule, by in rules.items() if rule != LEFT_OUT}
        for key, rules in of_seeds[request.param].items()
    }


def test_the_table_is_that_of_the_runs(script: ModuleType) -> None:
    text = script.PAGE.read_text("utf-8")
    shown = text.partition(script.BEGIN)[2].partition(script.END)[0].strip()
    assert shown == script.table(script.accuracies())
    assert len(shown.splitlines()) == 2 + 70


def test_without_a_defence(accuracy: Accuracies) -> None:
    for floor in ("undefended", "variance-floor"):
        for rule, by in accuracy[floor, "train-size"].items():
            assert max(by["sign-flip"], by["noise"]) <= 0.16
            most = 0.12 if floor == "undefended" else 0.15
            assert by["small-variance"] <= (most if rule in BY_PRECISION else 0.61)
            assert by["honest"] - by["echo"] < 0.01


def test_how_much_an_absurd_certainty_leaves_depends_on_the_seed(
    of_seeds: dict[str, Accuracies],
) -> None:
    most = {
        seed: max(
            by["small-variance"]
            for rule, by in found["undefended", "train-size"].items()
            if rule not in {*BY_PRECISION, LEFT_OUT}
        )
        for seed, found in of_seeds.items()
    }
    assert most["0"] <= 0.32
    assert 0.6 < most["1"] <= 0.61


def test_the_rule_that_is_left_out_has_learnt_nothing_to_speak_of(
    of_seeds: dict[str, Accuracies],
) -> None:
    for found in of_seeds.values():
        for floor in ("undefended", "variance-floor"):
            assert found[floor, "train-size"][LEFT_OUT]["honest"] <= 0.22
            assert found[floor, "distance"][LEFT_OUT]["honest"] <= 0.22


def test_weights_by_distance(accuracy: Accuracies) -> None:
    for floor in ("undefended", "variance-floor"):
        for rule, by in accuracy[floor, "distance"].items():
            assert by["echo"] < 0.19
            for lie in LIES:
                if rule == "conflation":
                    assert by[lie] < 0.16
                elif (rule, lie) == ("population-pooling", "noise"):
                    assert f"{by[lie]:.3f}" in ("0.567", "0.647")
                else:
                    assert by[lie] >= 0.96


def test_weights_by_maximum_discrepancy(accuracy: Accuracies) -> None:
    for rule, by in accuracy["undefended", "max-discrepancy"].items():
        assert max(by["sign-flip"], by["echo"]) < 0.19
        if rule == "conflation":
            continue
        assert by["noise"] >= 0.96 or f"{by['noise']:.3f}" in ("0.572", "0.642")
        assert (by["noise"] < 0.96) == (rule == "population-pooling")
        assert (by["small-variance"] <= 0.1) == (rule in BY_PRECISION)


def test_winsorization(of_seeds: dict[str, Accuracies]) -> None:
    by_size = [
        by
        for found in of_seeds.values()
        for rule, by in found["winsorization", "train-size"].items()
        if rule != LEFT_OUT
    ]
    attacked = [by[attack] for by in by_size for attack in (*LIES, "echo")]
    assert (f"{min(attacked):.3f}", f"{max(attacked):.3f}") == ("0.964", "0.975")
    honest = [by["honest"] for by in by_size]
    assert (f"{min(honest):.3f}", f"{max(honest):.3f}") == ("0.969", "0.978")
    by_distance = [
        by["echo"]
        for found in of_seeds.values()
        for rule, by in found["winsorization", "distance"].items()
        if rule != LEFT_OUT
    ]
    assert f"{min(by_distance):.3f}" == "0.917"
