"""What the page on FedBE on CIFAR-10 says of six seeds of step is what its runs have."""

from __future__ import annotations

from functools import partial

import fedbe2021_results as results
import pytest
from fedbe2021_results import AVERAGED, DISTILLED, ECE, FEDBE, NLL, PLAIN, ROOT, published

from bfl.configuration import resolve
from bfl.experiments.studies import read_study
from bfl.experiments.studies.paired import compare_pairs

STEP = "fedbe2021-step-cifar10"
SAID = results.said_under("### What six seeds say of step")
pair = partial(results.difference, STEP, runs=6)


def test_every_line_has_six_seeds() -> None:
    assert {row["runs_done"] for row in results.rows(STEP, "table.csv")} == {"6"}


def test_v_distillation_is_last() -> None:
    ahead = [pair("accuracy", method, DISTILLED) for method in (FEDBE, PLAIN, AVERAGED)]
    fedbe, plain, fedavg = ("({:.1f} to {:.1f})".format(*each[1:3]) for each in ahead)
    means = [f"{each.mean:.1f}" for each in ahead]
    assert f"FedBE is ahead of v-Distillation by {means[0]} points {fedbe}, FedBE" in SAID
    assert f"without SWA by {means[1]} {plain} and FedAvg by {means[2]} {fedavg}." in SAID
    assert {each.order for each in ahead} == {"test"}
    theirs = [published()[m] - published()[DISTILLED] for m in (FEDBE, PLAIN, AVERAGED)]
    assert "Published are {:.1f}, {:.1f} and {:.1f}, all of them left out.".format(*theirs) in SAID
    for ours, there in zip(ahead, theirs, strict=True):
        assert ours.low > there


def test_fedbe_is_behind_fedavg() -> None:
    behind, plain = (pair("accuracy", AVERAGED, method) for method in (FEDBE, PLAIN))
    assert (behind.order, plain.order) == ("test", "test")
    theirs = [published()[method] - published()[AVERAGED] for method in (FEDBE, PLAIN)]
    numbers = *behind[:3], theirs[0]
    words = "by {:.1f} points ({:.1f} to {:.1f}), and published {:.1f} ahead"
    assert words.format(*numbers) in SAID
    numbers = *plain[:3], theirs[1]
    words = "it is behind by {:.1f} ({:.1f} to {:.1f}), published {:.1f} ahead."
    assert words.format(*numbers) in SAID
    assert min(behind.mean, plain.mean) > 0


def test_no_advantage_of_averaged_models_is_found() -> None:
    mean, low, high, order = pair("accuracy", FEDBE, PLAIN)
    assert order == "not significant"
    theirs = published()[FEDBE] - published()[PLAIN]
    assert f"{mean:.1f} points ({low:.1f} to +{high:.1f}), published {theirs:.1f}." in SAID


def of_the_other_three(metric: str, one: str, other: str, than: str = "") -> str:
    """Return a difference over the three seeds that had not been seen, as the page has it."""
    sides = (metric, one), (than or metric, other)
    mine, theirs = ([100 * v for v in results.seeds(STEP, m, line)[3:]] for m, line in sides)
    found = compare_pairs(mine, theirs)
    assert (found.pairs, found.by_interval) == (3, True)
    return f"{found.difference:.1f} ({found.low:.1f} to {found.high:.1f})"


def test_fedbe_without_averaged_models_leads_early_and_is_overtaken() -> None:
    early, ten = (pair(f"accuracy-at-round-{n}", PLAIN, AVERAGED) for n in (5, 10))
    assert [early.order, ten.order] == ["test", "test"]
    assert "is {:.1f} points ({:.1f} to {:.1f}) ahead of FedAvg after 5".format(*early) in SAID
    assert "and {:.1f} ({:.1f} to {:.1f}) after 10".format(*ten) in SAID
    others = [of_the_other_three(f"accuracy-at-round-{n}", PLAIN, AVERAGED) for n in (5, 10)]
    assert "the other three alone have {} and {}. Where the".format(*others) in SAID
    assert pair("accuracy", PLAIN, AVERAGED)[0] < 0


def test_v_distillation_falls() -> None:
    falls = zip(
        *(results.seeds(STEP, name, DISTILLED) for name in ("accuracy-at-round-10", "accuracy")),
        strict=True,
    )
    assert [ten_rounds > twenty for ten_rounds, twenty in falls] == [True] * 6
    of_line = results.line(STEP, DISTILLED)
    ends = [float(of_line[column]) for column in ("accuracy-at-round-10", "accuracy")]
    assert "from {:.1f} % on average after 10 rounds to {:.1f}.".format(*ends) in SAID


def test_v_distillation_does_not_lead_for_the_first_ten_rounds() -> None:
    mean, _, _, order = pair("accuracy-at-round-5", PLAIN, DISTILLED)
    assert order == "test"
    assert f"after 5 FedBE without SWA is {mean:.1f} points ahead of it" in SAID
    assert pair("accuracy-at-round-5", DISTILLED, AVERAGED)[3] == "not significant"
    ten = [pair("accuracy-at-round-10", method, DISTILLED) for method in (FEDBE, PLAIN)]
    assert {order for *_, order in ten} == {"test"}
    words = "after 10 it is {:.1f} points behind FedBE and {:.1f} behind FedBE without SWA"
    assert words.format(*(mean for mean, *_ in ten)) in SAID


def test_the_rates_fall_where_the_page_says() -> None:
    run = read_study(ROOT / "configs/fedbe2021/step-cifar10.toml").runs()[0]
    values = resolve(dict(run.values), check_data=False).values
    shares = str(values["lr-milestones"]).split(",")
    rounds = [round(float(share) * int(values["rounds"])) for share in shares]
    assert "The clients' rate falls after rounds {} and {} and".format(*rounds) in SAID
    assert 10_000 / int(values["server-examples"]) == 2.5


def test_the_ensemble_was_ahead_in_the_seeds_that_had_not_been_seen() -> None:
    others = [
        of_the_other_three(
            f"ensemble-accuracy-at-round-{n}", AVERAGED, AVERAGED, f"accuracy-at-round-{n}"
        )
        for n in (5, 10)
    ]
    assert "the other three alone have {} and {}. -".format(*others) in SAID


def test_the_ensemble_of_fedavg_is_ahead_of_its_model_early_alone() -> None:
    found = []
    for end in ("-at-round-5", "-at-round-10", ""):
        both = (
            results.seeds(STEP, f"{name}{end}", AVERAGED)
            for name in ("ensemble-accuracy", "accuracy")
        )
        found.append(compare_pairs(*([100 * value for value in values] for values in both)))
    assert [(each.pairs, each.by_interval) for each in found] == [(6, True), (6, True), (6, False)]
    five, ten, last = found
    assert f"by {five.difference:.1f} points ({five.low:.1f} to {five.high:.1f}) after 5" in SAID
    assert f"{ten.difference:.1f} ({ten.low:.1f} to {ten.high:.1f}) after 10" in SAID
    assert f"{last.difference:.3f} ({last.low:.1f} to +{last.high:.1f}) after 20" in SAID


@pytest.mark.parametrize(("method", "place"), [(FEDBE, 0), (PLAIN, 1)])
def test_students_are_worse_calibrated(method: str, place: int) -> None:
    for metric in (ECE, NLL):
        assert pair(metric, method, AVERAGED).order == "test"
    errors = [f"{float(results.line(STEP, m)[ECE]):.3f}" for m in (FEDBE, PLAIN, AVERAGED)]
    assert (
        "ECE is {} and {} with FedBE with and without SWA, {} with FedAvg".format(*errors) in SAID
    )
    higher = [f"{pair(NLL, m, AVERAGED)[0]:.2f}" for m in (FEDBE, PLAIN)]
    assert "and NLL {} and {} higher".format(*higher) in SAID
    together = [f"{float(results.line(STEP, m)[f'ensemble-{ECE}']):.3f}" for m in (FEDBE, PLAIN)]
    assert "their ensembles have {} and {}.".format(*together) in SAID
    assert float(together[place]) < float(errors[place])
