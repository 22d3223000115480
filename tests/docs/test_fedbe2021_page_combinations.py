"""What the page on FedBE on CIFAR-10 says of FedBE with other methods is what its runs have."""

from __future__ import annotations

import json

import fedbe2021_results as results
import pytest
from fedbe2021_results import AVERAGED, Difference, of_paper

COMBINATIONS = "fedbe2021-combinations-cifar10"
SAID = results.said_under("### What three seeds say of combinations")


def found(method: str, clients: str = "with momentum") -> Difference:
    """Return what FedBE adds to a method, in points."""
    lines = f"{clients},FedBE + {method}", f"{clients},{method}"
    return results.difference(COMBINATIONS, "accuracy", *lines)


def theirs(method: str, table: str = "table2", **labels: str) -> float:
    """Return what FedBE adds to a method in the paper, in points."""
    labels = labels or {"partition": "step", "network": "ConvNet"}
    both = (of_paper(table, method=name, **labels) for name in (f"FedBE + {method}", method))
    return next(both) - next(both)


def accuracy(method: str, clients: str = "with momentum") -> str:
    return f"{float(results.line(COMBINATIONS, clients, method)['accuracy']):.1f}"


def test_every_line_has_three_seeds() -> None:
    assert [row["runs_done"] for row in results.rows(COMBINATIONS, "table.csv")] == ["3"] * 7


def test_fedbe_with_fedavgm_is_ahead() -> None:
    ours, there = found("FedAvgM"), theirs("FedAvgM")
    assert ours.order == "interval"
    numbers = *ours[:3], there
    assert "by {:.1f} points ({:.1f} to {:.1f}), published {:.1f}.".format(*numbers) in SAID
    words = f"FedAvgM has {accuracy('FedAvgM')} %, below FedProx's {accuracy('FedProx')}."
    assert words in SAID
    lines = "with momentum,FedProx", "with momentum,FedAvgM"
    below = results.difference(COMBINATIONS, "accuracy", *lines)
    assert (below.order, below.mean > 0) == ("interval", True)


def test_with_fedprox_and_scaffold_there_is_no_order() -> None:
    both = found("FedProx"), found("SCAFFOLD", "without momentum")
    assert {each.order for each in both} == {"not significant"}
    words = (f"{each.mean:.1f}, {each.low:.1f} to +{each.high:.1f}" for each in both)
    assert "there is no order** ({}; {}).".format(*words) in SAID
    there = theirs("FedProx"), theirs("SCAFFOLD", "scaffold", network="ResNet20")
    assert f"ahead by {there[0]:.1f}, which the first interval leaves out," in SAID
    assert f"for ResNet-20, by {there[1]:.1f}, which the second does." in SAID
    for ours, published in zip(both, there, strict=True):
        assert ours.high < published


def test_clients_without_momentum_do_learn() -> None:
    plain = accuracy(AVERAGED, "without momentum")
    assert f"FedAvg has {plain} %, so these clients do learn." in SAID
    assert float(plain) > 30, "ten classes: chance is 10 %"


@pytest.mark.parametrize(("seed", "rounds"), [(0, 0), (1, 2), (2, 3)])
def test_as_many_models_were_refused_as_is_said(seed: int, rounds: int) -> None:
    name = f"runs/without-momentum-fedbe-+-scaffold_seed-{seed}.json"
    result = json.loads((results.RESULTS / COMBINATIONS / name).read_text("utf-8"))
    assert result["lost"].get("refused", 0) == rounds
    assert "In 2 rounds of FedBE with SCAFFOLD's seed 1 and 3 of its seed 2" in SAID
