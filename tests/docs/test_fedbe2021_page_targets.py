"""What the page on FedBE on CIFAR-10 says of targets is what its runs have."""

from __future__ import annotations

from functools import partial

import fedbe2021_results as results
from fedbe2021_results import DISTILLED, NLL, Difference, of_paper

from bfl.experiments.studies.paired import compare_pairs

TARGETS = "fedbe2021-targets-cifar10"
SAID = results.said_under("### What three seeds say of targets")
ALL, ELSEWHERE = "S+A+C", "S+A+C, Tiny-ImageNet"
TEN, ALONE = "10A+C", "ground truth, clients at rest"
pair = partial(results.difference, TARGETS)


def theirs(one: str, other: str) -> float:
    """Return what the paper has between two targets, in points."""
    first, second = (of_paper("table3", targets=each, network="ConvNet") for each in (one, other))
    return first - second


def numbers(found: Difference) -> str:
    return f"{found.mean:.1f} points ({found.low:.1f} to {found.high:.1f})"


def test_a_and_c_has_the_lowest_accuracy() -> None:
    found = pair("accuracy", ALL, "A+C")
    there = theirs(ALL, "A+C")
    assert f"S + A + C is {numbers(found)} ahead of it, published {there:.1f}," in SAID
    assert not found.low <= there <= found.high
    others = ("A", "S", "S+A", "S+C", TEN, ALL, "ground truth", ALONE, ELSEWHERE)
    behind = [pair("accuracy", "A+C", other) for other in others]
    assert {(each.order, each.mean < 0) for each in behind} == {("interval", True)}
    found = pair("accuracy", "S+C", ALL)
    assert found.order == "not significant"
    words = f"({found.mean:.2f}, {found.low:.1f} to +{found.high:.1f})."
    assert f"S + C is not found behind S + A + C {words}" in SAID


def test_clients_alone_are_below_it() -> None:
    mine = [100 * value for value in results.seeds(TARGETS, "accuracy", "A+C")]
    of_step = results.seeds("fedbe2021-step-cifar10", "accuracy", DISTILLED)
    found = compare_pairs(mine, [100 * value for value in of_step[:3]])
    words = f"are {found.difference:.1f} ({found.low:.1f} to {found.high:.1f}) below A + C;"
    assert (found.by_interval, words in SAID) == (True, True)


def test_in_likelihood_it_is_better_than_those_without_clients() -> None:
    found = [pair(NLL, targets, "A+C") for targets in ("A", "S", "S+A")]
    assert {each.order for each in found} == {"interval"}
    first, second, third = ("{:.2f} ({:.2f} to {:.2f})".format(*each[:3]) for each in found)
    assert f"S and S + A, by {first}, {second} and {third}." in SAID


def test_samples_teach_hardly_more_than_the_average_ten_times() -> None:
    found, in_nll = pair("accuracy", "S+C", TEN), pair(NLL, TEN, "S+C")
    assert (found.order, in_nll.order) == ("not significant", "interval")
    words = f"in accuracy ({found.mean:.2f}, {found.low:.1f} to +{found.high:.1f}), NLL is "
    words += f"{in_nll.mean:.4f} lower ({in_nll.low:.4f} to {in_nll.high:.4f}),"
    assert words in SAID
    ahead = pair("accuracy", TEN, "A+C")
    assert ahead.order == "interval"
    assert f"10 A + C is {numbers(ahead)} ahead of A + C." in SAID


def test_the_servers_labels_alone_are_ahead_of_the_clients_models() -> None:
    above, added = pair("accuracy", ALONE, ALL), pair("accuracy", "ground truth", ALONE)
    assert {above.order, added.order} == {"interval"}
    has = float(results.line(TARGETS, ALONE)["accuracy"])
    assert f"has {has:.1f} %, {numbers(above)} above S + A + C;" in SAID
    added_words = f"add {added.mean:.1f} ({added.low:.1f} to {added.high:.1f})."
    assert f"clients who learn {added_words}" in SAID


def test_without_clients_accuracy_is_not_found_lower_and_likelihood_is_worse() -> None:
    without = "A", "S", "S+A"
    behind = [pair("accuracy", ALL, targets) for targets in without]
    assert {each.order for each in behind} == {"not significant"}
    there = [theirs(ALL, targets) for targets in without]
    words = "{:.1f}, {:.1f} and {:.1f} points behind S + A + C, with no order, published {:.1f}, "
    words += "{:.1f} and {:.1f};"
    assert words.format(*(each.mean for each in behind), *there) in SAID
    higher = [pair(NLL, targets, ALL) for targets in without]
    assert {(each.order, each.mean > 0) for each in higher} == {("interval", True)}
    first, second, third = ("{:.2f} ({:.2f} to {:.2f})".format(*each[:3]) for each in higher)
    assert f"their NLL is higher by {first}, {second} and {third}." in SAID


def test_between_samples_and_the_average_there_is_no_order() -> None:
    found = pair("accuracy", "S", "A")
    assert found.order == "not significant"
    assert f"is no order** ({found.mean:.1f}, {found.low:.1f} to +{found.high:.1f})." in SAID


def test_the_ground_truth_is_ahead() -> None:
    found = pair("accuracy", "ground truth", ALL)
    assert found.order == "interval"
    there = theirs("ground truth", ALL)
    assert f"ahead of S + A + C** by {numbers(found)}, published {there:.1f} with" in SAID
    assert found.low > there


def test_images_of_another_data_set_cost_accuracy() -> None:
    found = pair("accuracy", ALL, ELSEWHERE)
    assert found.order == "interval"
    assert (
        f"images cost {found.mean:.1f} points** ({found.low:.1f} to {found.high:.1f}), 4,000"
        in SAID
    )
    labels = {"partition": "step", "network": "ConvNet"}
    there = {of_paper("table4", server=name, **labels) for name in ("CIFAR-10", "Tiny-ImageNet")}
    assert f"has the same {there.pop():.1f} for both, with" in SAID
    assert not there
