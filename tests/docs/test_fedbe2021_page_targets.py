"""What the page on FedBE on CIFAR-10 says of targets is what its runs have."""

from __future__ import annotations

from functools import partial

import fedbe2021_results as results
from fedbe2021_results import NLL, Difference, of_paper

TARGETS = "fedbe2021-targets-cifar10"
SAID = results.said_under("### What three seeds say of targets")
ALL, ELSEWHERE = "S+A+C", "S+A+C, Tiny-ImageNet"
pair = partial(results.difference, TARGETS)


def theirs(one: str, other: str) -> float:
    """Return what the paper has between two targets, in points."""
    first, second = (of_paper("table3", targets=each, network="ConvNet") for each in (one, other))
    return first - second


def numbers(found: Difference) -> str:
    return f"{found.mean:.1f} points ({found.low:.1f} to {found.high:.1f})"


def test_every_line_has_three_seeds() -> None:
    assert [row["runs_done"] for row in results.rows(TARGETS, "table.csv")] == ["3"] * 8


def test_clients_and_the_average_alone_are_the_worst_teachers() -> None:
    found = pair("accuracy", ALL, "A+C")
    there = theirs(ALL, "A+C")
    assert f"S + A + C is {numbers(found)} ahead of A + C, published {there:.1f}," in SAID
    assert not found.low <= there <= found.high
    others = ("A", "S", "S+A", "S+C", ALL, "ground truth", ELSEWHERE)
    behind = [pair("accuracy", "A+C", other) for other in others]
    assert {(each.order, each.mean < 0) for each in behind} == {("interval", True)}
    found = pair("accuracy", "S+C", ALL)
    assert found.order == "not significant"
    words = f"({found.mean:.2f}, {found.low:.1f} to +{found.high:.1f})."
    assert f"S + C is not found behind S + A + C {words}" in SAID


def test_without_clients_accuracy_is_not_found_lower_and_likelihood_is() -> None:
    without = "A", "S", "S+A"
    behind = [pair("accuracy", ALL, targets) for targets in without]
    assert {each.order for each in behind} == {"not significant"}
    words = "{:.1f}, {:.1f} and {:.1f} points behind S + A + C, with no order;"
    assert words.format(*(each.mean for each in behind)) in SAID
    surer = [pair(NLL, targets, ALL) for targets in without]
    assert {(each.order, each.mean > 0) for each in surer} == {("interval", True)}
    has = [float(results.line(TARGETS, targets)[NLL]) for targets in (*without, ALL)]
    assert "is {:.2f}, {:.2f} and {:.2f}, with all targets {:.2f}.".format(*has) in SAID
    there = (theirs(ALL, targets) for targets in without)
    assert "Published differences are {:.1f}, {:.1f} and {:.1f}.".format(*there) in SAID


def test_between_samples_and_the_average_there_is_no_order() -> None:
    found = pair("accuracy", "S", "A")
    assert found.order == "not significant"
    assert f"is no order** ({found.mean:.1f}, {found.low:.1f} to +{found.high:.1f})." in SAID


def test_the_ground_truth_is_ahead() -> None:
    found = pair("accuracy", "ground truth", ALL)
    assert found.order == "interval"
    there = theirs("ground truth", ALL)
    assert f"ahead of S + A + C** by {numbers(found)}, published {there:.1f}." in SAID
    assert found.low > there


def test_images_of_another_data_set_cost_accuracy() -> None:
    found = pair("accuracy", ALL, ELSEWHERE)
    assert found.order == "interval"
    assert f"images cost {found.mean:.1f} points** ({found.low:.1f} to {found.high:.1f})" in SAID
    labels = {"partition": "step", "network": "ConvNet"}
    there = {of_paper("table4", server=name, **labels) for name in ("CIFAR-10", "Tiny-ImageNet")}
    assert f"has the same {there.pop():.1f} for both." in SAID
    assert not there
