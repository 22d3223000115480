"""What the page on FedBE on CIFAR-10 says of step as coded is what its runs have."""

from __future__ import annotations

from functools import partial

import fedbe2021_results as results
import pytest
from fedbe2021_results import AVERAGED, DISTILLED, ECE, FEDBE, NLL, PLAIN, Difference, published
from scipy.stats import ttest_ind

from bfl.experiments.studies.paired import compare_pairs

WRITTEN, CODED = "fedbe2021-step-cifar10", "fedbe2021-as-coded-step-cifar10"
SAID = results.said_under("### What three seeds say of the code")
pair = partial(results.difference, CODED)


def theirs(one: str, other: str) -> float:
    return published()[one] - published()[other]


def holds(found: Difference, number: float) -> bool:
    return found.low <= number <= found.high


def test_every_line_has_three_seeds() -> None:
    assert [row["runs_done"] for row in results.rows(CODED, "table.csv")] == ["3"] * 4


def test_v_distillation_is_last_and_as_far_behind_as_published() -> None:
    ahead = [pair("accuracy", method, DISTILLED) for method in (FEDBE, PLAIN, AVERAGED)]
    fedbe, plain, fedavg = (f"({each.low:.1f} to {each.high:.1f})" for each in ahead)
    means = [f"{each.mean:.1f}" for each in ahead]
    assert {each.order for each in ahead} == {"interval"}
    assert f"FedBE is {means[0]} points ahead of it {fedbe}, FedBE without SWA" in SAID
    assert f"without SWA {means[1]} {plain} and FedAvg {means[2]} {fedavg}." in SAID
    there = [theirs(method, DISTILLED) for method in (FEDBE, PLAIN, AVERAGED)]
    assert "Published are {:.1f}, {:.1f} and {:.1f}: all three".format(*there) in SAID
    assert [holds(*each) for each in zip(ahead, there, strict=True)] == [True] * 3
    written = [
        results.difference(WRITTEN, "accuracy", method, DISTILLED, runs=6)
        for method in (FEDBE, PLAIN, AVERAGED)
    ]
    assert [holds(*each) for each in zip(written, there, strict=True)] == [False] * 3
    first_three = [gaps(WRITTEN, method)[:3] for method in (FEDBE, PLAIN, AVERAGED)]
    alone = [compare_pairs(found, [0.0] * 3) for found in first_three]
    held = [a.low <= number <= a.high for a, number in zip(alone, there, strict=True)]
    assert held == [True, False, False]
    assert f"that of FedBE does ({alone[0].low:.1f} to {alone[0].high:.1f})" in SAID


def gaps(study: str, method: str) -> list[float]:
    """Return by how many points a method is ahead of v-Distillation, by seed."""
    both = (results.seeds(study, "accuracy", line) for line in (method, DISTILLED))
    return [100 * (mine - theirs) for mine, theirs in zip(*both, strict=True)]


def test_it_is_less_far_behind_than_as_written() -> None:
    """Unpaired, as the partitions are others."""
    said = []
    for method in (FEDBE, PLAIN, AVERAGED):
        written, coded = gaps(WRITTEN, method), gaps(CODED, method)
        assert (len(written), len(coded)) == (6, 3)
        found = ttest_ind(written, coded, equal_var=False).confidence_interval()
        assert found.low > 0
        less = sum(written) / 6 - sum(coded) / 3
        said.append(f"{less:.1f}{{}} ({found.low:.1f} to {found.high:.1f})")
    first, second, third = said
    words = f"That is {first.format(' points')}, {second.format('')} and {third.format('')} less"
    assert words in SAID


def test_v_distillation_does_not_fall() -> None:
    ten, end = (
        results.seeds(CODED, metric, DISTILLED) for metric in ("accuracy-at-round-10", "accuracy")
    )
    assert all(before < after for before, after in zip(ten, end, strict=True))
    means = (100 * sum(values) / 3 for values in (ten, end))
    words = "from {:.1f} % after 10 rounds to {:.1f}, in each seed upwards."
    assert words.format(*means) in SAID


def test_neither_the_lead_over_fedavg_nor_that_of_swa_is_found() -> None:
    for other, words in ((AVERAGED, "of FedAvg** ({})"), (PLAIN, "advantage found** ({})")):
        found = pair("accuracy", FEDBE, other)
        assert found.order == "not significant"
        assert words.format(f"{found.mean:.1f}, {found.low:.1f} to +{found.high:.1f}") in SAID
        written = results.difference(WRITTEN, "accuracy", FEDBE, other, runs=6)
        assert not holds(found, theirs(FEDBE, other))
        assert not holds(written, theirs(FEDBE, other))
    both = (theirs(FEDBE, AVERAGED), theirs(FEDBE, PLAIN))
    assert "holds the published {:.1f} and {:.1f},".format(*both) in SAID


def test_distilling_does_not_lead_early() -> None:
    for rounds in (5, 10):
        metric = f"accuracy-at-round-{rounds}"
        orders = {pair(metric, method, AVERAGED).order for method in (FEDBE, PLAIN, DISTILLED)}
        assert orders == {"not significant"}


def test_the_ensemble_of_fedavg_is_ahead_of_its_model_early_alone() -> None:
    found = []
    for end in ("-at-round-5", "-at-round-10", ""):
        both = (
            [100 * value for value in results.seeds(CODED, f"{name}{end}", AVERAGED)]
            for name in ("ensemble-accuracy", "accuracy")
        )
        found.append(compare_pairs(*both))
    assert [each.by_interval for each in found] == [True, True, False]
    words = "by {:.1f} points ({:.1f} to {:.1f}) and {:.1f} ({:.1f} to {:.1f}), after 20 rounds"
    numbers = [n for each in found[:2] for n in (each.difference, each.low, each.high)]
    assert words.format(*numbers) in SAID


@pytest.mark.parametrize("metric", [ECE, NLL])
def test_students_are_worse_calibrated(metric: str) -> None:
    found = [pair(metric, method, AVERAGED) for method in (FEDBE, PLAIN)]
    assert {each.order for each in found} == {"interval"}
    errors = [float(results.line(CODED, method)[ECE]) for method in (FEDBE, PLAIN, AVERAGED)]
    words = "ECE is {:.3f} and {:.3f} with FedBE with and without SWA, {:.3f} with FedAvg"
    assert words.format(*errors) in SAID
    if metric == NLL:
        assert "and NLL {:.2f} and {:.2f} higher".format(*(each.mean for each in found)) in SAID
