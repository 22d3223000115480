"""What the page on FedBE on CIFAR-10 says of the Dirichlet partition is what its runs have."""

from __future__ import annotations

from functools import partial

import fedbe2021_results as results
import pytest
from fedbe2021_results import AVERAGED, DISTILLED, ECE, FEDBE, NLL, PLAIN

from bfl.experiments.studies.paired import compare_pairs

DIRICHLET = "fedbe2021-dirichlet-cifar10"
SAID = results.said_under("### What three seeds say of Dirichlet")
pair = partial(results.difference, DIRICHLET)


def theirs(one: str, other: str) -> float:
    """Return what the paper has between two methods, in points."""
    table = results.published("dirichlet-0.1")
    return table[one] - table[other]


def test_every_line_has_three_seeds() -> None:
    assert [row["runs_done"] for row in results.rows(DIRICHLET, "table.csv")] == ["3"] * 4


def test_fedbe_without_swa_is_behind_fedavg() -> None:
    found = pair("accuracy", AVERAGED, PLAIN)
    assert found.order == "interval"
    numbers = *found[:3], theirs(AVERAGED, PLAIN)
    assert "by {:.1f} points ({:.1f} to {:.1f}), published {:.1f}.".format(*numbers) in SAID


def test_neither_the_lead_over_fedavg_nor_that_of_swa_is_found() -> None:
    for other, words in ((AVERAGED, "of FedAvg** ({})"), (PLAIN, "advantage found** (+{})")):
        found = pair("accuracy", FEDBE, other)
        assert found.order == "not significant"
        assert words.format(f"{found.mean:.1f}, {found.low:.1f} to +{found.high:.1f}") in SAID
        assert not found.low <= theirs(FEDBE, other) <= found.high
    both = theirs(FEDBE, AVERAGED), theirs(FEDBE, PLAIN)
    assert "holds what is published, {:.1f} and {:.1f}.".format(*both) in SAID


def test_v_distillation_has_the_lowest_mean_and_no_order() -> None:
    means = {row["method"]: float(row["accuracy"]) for row in results.rows(DIRICHLET, "table.csv")}
    assert min(means, key=lambda method: means[method]) == DISTILLED
    orders = {pair("accuracy", DISTILLED, other).order for other in (FEDBE, PLAIN, AVERAGED)}
    assert orders == {"not significant"}
    found = pair("accuracy", DISTILLED, AVERAGED)
    numbers = -found.mean, found.low, found.high
    assert "{:.1f} points below FedAvg ({:.1f} to +{:.1f})".format(*numbers) in SAID
    runs = [100 * value for value in results.seeds(DIRICHLET, "accuracy", DISTILLED)]
    assert "as its seeds have {:.1f}, {:.1f} and {:.1f} %.".format(*runs) in SAID
    there = theirs(DISTILLED, AVERAGED)
    assert found.low <= there <= found.high
    assert f"holds the published {-there:.1f}." in SAID


def test_fedbe_without_averaged_models_leads_in_between() -> None:
    orders = {pair(f"accuracy-at-round-{n}", FEDBE, AVERAGED).order for n in (5, 10)}
    assert orders == {"not significant"}
    after_five, after_ten = (
        pair(f"accuracy-at-round-{rounds}", PLAIN, AVERAGED) for rounds in (5, 10)
    )
    assert (after_five.order, after_ten.order) == ("not significant", "interval")
    words = "is {:.1f} points ({:.1f} to {:.1f}) ahead of FedAvg after 10 rounds;"
    assert words.format(*after_ten[:3]) in SAID


@pytest.mark.parametrize("end", ["-at-round-5", "-at-round-10", ""])
def test_the_ensemble_of_fedavg_is_found_ahead_of_its_model_in_no_round(end: str) -> None:
    ensemble, model = (
        results.seeds(DIRICHLET, f"{name}{end}", AVERAGED)
        for name in ("ensemble-accuracy", "accuracy")
    )
    found = compare_pairs(ensemble, model)
    assert (found.pairs, found.by_interval) == (3, False)
    assert "is found ahead of its model after 5, 10 and 20 rounds in none." in SAID


def test_students_are_worse_calibrated() -> None:
    higher = {
        metric: [pair(metric, method, AVERAGED) for method in (FEDBE, PLAIN)]
        for metric in (ECE, NLL)
    }
    assert {each.order for found in higher.values() for each in found} == {"interval"}
    errors = [float(results.line(DIRICHLET, method)[ECE]) for method in (FEDBE, PLAIN, AVERAGED)]
    words = "ECE is {:.3f} and {:.3f} with FedBE with and without SWA, {:.3f} with FedAvg"
    assert words.format(*errors) in SAID
    words = "and NLL {:.2f} and {:.2f} higher, all by the interval."
    assert words.format(*(each.mean for each in higher[NLL])) in SAID
