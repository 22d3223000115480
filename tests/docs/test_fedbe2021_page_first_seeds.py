"""What the page on FedBE on CIFAR-10 says of studies with a seed or two is what these have."""

from __future__ import annotations

import fedbe2021_results as results
import pytest
from fedbe2021_results import NLL
from fedbe2021_results import of_paper as published

TARGETS, COMBINATIONS = "fedbe2021-targets-cifar10", "fedbe2021-combinations-cifar10"
OF_TARGETS = results.said_under("### What one seed has of targets")
OF_COMBINATIONS = results.said_under("### What one seed has of combinations")


def first(study: str, *labels: str, metric: str = "accuracy") -> float:
    """Return seed 0's number of a line, of an accuracy in percent as the tables have it."""
    number = results.seeds(study, metric, *labels)[0]
    return 100 * number if metric == "accuracy" else number


def done(study: str) -> dict[str, int]:
    """Return the number of runs of each line."""
    rows = results.rows(study, "table.csv")
    name = "targets" if "targets" in rows[0] else "method"
    return {f"{row.get('clients', '')} {row[name]}".strip(): int(row["runs_done"]) for row in rows}


def test_as_many_seeds_have_been_made_as_is_said() -> None:
    targets = done(TARGETS)
    assert targets.pop("S+A+C") == 3
    assert set(targets.values()) == {1}
    assert "Only S + A + C has three seeds, so **no order is told**" in OF_TARGETS
    assert set(done(COMBINATIONS).values()) == {1}


@pytest.mark.parametrize("targets", list(done(TARGETS)))
def test_a_target_has_the_accuracy_that_is_said(targets: str) -> None:
    if targets.endswith("Tiny-ImageNet"):
        there = published("table4", partition="step", server="Tiny-ImageNet", network="ConvNet")
    else:
        there = published("table3", targets=targets, network="ConvNet")
    assert f"| {targets} | {first(TARGETS, targets):.1f} | {there:.1f} |" in OF_TARGETS


def test_differences_of_targets_are_as_said() -> None:
    def above(one: str, other: str) -> tuple[float, float]:
        ours = first(TARGETS, one) - first(TARGETS, other)
        sides = (published("table3", targets=each, network="ConvNet") for each in (one, other))
        return ours, next(sides) - next(sides)

    ours, there = above("S+A+C", "A+C")
    assert f"A + C is {ours:.1f} points below S + A + C, published {there:.1f}" in OF_TARGETS
    ours, there = above("ground truth", "S+A+C")
    assert f"the ground truth {ours:.1f} above, published {there:.1f}" in OF_TARGETS
    said = (first(TARGETS, targets, metric=NLL) for targets in ("A", "S", "S+A", "S+A+C"))
    text = "NLL is {:.3f}, {:.3f} and {:.3f} (A, S, S + A), with all of them {:.3f}."
    assert text.format(*said) in OF_TARGETS


def test_accuracies_of_combinations_are_as_said() -> None:
    said = []
    for method, clients in (("FedProx", "with"), ("FedAvgM", "with"), ("SCAFFOLD", "without")):
        names = f"FedBE + {method}", method
        said += [first(COMBINATIONS, f"{clients} momentum", name) for name in names]
        if method == "SCAFFOLD":
            said += [published("scaffold", method=name, network="ResNet20") for name in names]
        else:
            table = {"partition": "step", "network": "ConvNet"}
            said += [published("table2", **table, method=name) for name in names]
    text = (
        "{:.1f} and {:.1f} % (FedProx, published {:.1f} and {:.1f}), {:.1f} and {:.1f} (FedAvgM, "
        "{:.1f} and {:.1f}), and {:.1f} and {:.1f} (SCAFFOLD, published for ResNet-20 {:.1f} and "
        "{:.1f})."
    )
    assert text.format(*said) in OF_COMBINATIONS
    plain = first(COMBINATIONS, "without momentum", "FedAvg")
    assert f"FedAvg has {plain:.1f} %" in OF_COMBINATIONS
    assert plain > 30, "ten classes: chance is 10 %"
