"""What the page on FedBE on CIFAR-10 says of three seeds of step is what its runs have."""

from __future__ import annotations

from functools import partial

import fedbe2021_results as results
import pytest
from fedbe2021_results import AVERAGED, DISTILLED, ECE, FEDBE, NLL, PLAIN, ROOT, published

from bfl.configuration import resolve
from bfl.experiments.studies import read_study
from bfl.experiments.studies.paired import compare_pairs

STEP = "fedbe2021-step-cifar10"
SAID = results.said_under("### What three seeds say of step")
pair = partial(results.difference, STEP)


def test_every_line_has_three_seeds() -> None:
    assert {row["runs_done"] for row in results.rows(STEP, "table.csv")} == {"3"}


def test_v_distillation_is_last() -> None:
    ahead = [pair("accuracy", method, DISTILLED) for method in (FEDBE, PLAIN, AVERAGED)]
    words = "by {:.1f} points, FedBE without SWA by {:.1f} and FedAvg by {:.1f}. Published are"
    assert words.format(*(mean for mean, *_ in ahead)) in SAID
    assert {order for *_, order in ahead} == {"interval"}
    theirs = [published()[m] - published()[DISTILLED] for m in (FEDBE, PLAIN, AVERAGED)]
    assert "Published are {:.1f}, {:.1f} and {:.1f}.".format(*theirs) in SAID


def test_fedbe_is_behind_fedavg() -> None:
    mean, low, high, order = pair("accuracy", AVERAGED, FEDBE)
    assert (order, mean > 0) == ("interval", True)
    theirs = published()[FEDBE] - published()[AVERAGED]
    words = f"by {mean:.1f} points ({low:.1f} to {high:.1f}), and published {theirs:.1f} ahead"
    assert words in SAID
    mean, low, high, order = pair("accuracy", PLAIN, AVERAGED)
    assert order == "not significant"
    assert f"without SWA it is not found behind ({mean:.1f}, {low:.1f} to +{high:.1f})" in SAID
    mean, low, high, order = pair("accuracy", FEDBE, PLAIN)
    assert order == "not significant"
    theirs = published()[FEDBE] - published()[PLAIN]
    assert f"{mean:.1f} points ({low:.1f} to +{high:.1f}), published {theirs:.1f}." in SAID


def test_distilling_leads_early_and_is_overtaken() -> None:
    early, ten = (pair(f"accuracy-at-round-{n}", PLAIN, AVERAGED) for n in (5, 10))
    assert [early[3], ten[3]] == ["interval", "interval"]
    assert "is {:.1f} points ({:.1f} to {:.1f}) ahead of FedAvg after 5".format(*early) in SAID
    assert "and {:.1f} ({:.2f} to {:.1f}) after 10".format(*ten) in SAID
    assert pair("accuracy", PLAIN, AVERAGED)[0] < 0
    falls = zip(
        *(results.seeds(STEP, name, DISTILLED) for name in ("accuracy-at-round-10", "accuracy")),
        strict=True,
    )
    assert [ten_rounds > twenty for ten_rounds, twenty in falls] == [True] * 3
    of_line = results.line(STEP, DISTILLED)
    ends = [float(of_line[column]) for column in ("accuracy-at-round-10", "accuracy")]
    assert "from {:.1f} % on average after 10 rounds to {:.1f}.".format(*ends) in SAID


def test_v_distillation_does_not_lead_for_the_first_ten_rounds() -> None:
    mean, _, _, order = pair("accuracy-at-round-5", PLAIN, DISTILLED)
    assert order == "interval"
    assert f"after 5 FedBE without SWA is {mean:.1f} points ahead of it" in SAID
    assert pair("accuracy-at-round-5", DISTILLED, AVERAGED)[3] == "not significant"
    ten = [pair("accuracy-at-round-10", method, DISTILLED) for method in (FEDBE, PLAIN)]
    assert {order for *_, order in ten} == {"interval"}
    words = "after 10 it is {:.1f} points behind FedBE and {:.1f} behind FedBE without SWA"
    assert words.format(*(mean for mean, *_ in ten)) in SAID


def test_the_rates_fall_where_the_page_says() -> None:
    run = read_study(ROOT / "configs/fedbe2021/step-cifar10.toml").runs()[0]
    values = resolve(dict(run.values), check_data=False).values
    shares = str(values["lr-milestones"]).split(",")
    rounds = [round(float(share) * int(values["rounds"])) for share in shares]
    assert "The clients' rate falls after rounds {} and {},".format(*rounds) in SAID
    assert 10_000 / int(values["server-examples"]) == 2.5


def test_the_ensemble_of_fedavg_is_ahead_of_its_model_early_alone() -> None:
    found = []
    for end in ("-at-round-5", "-at-round-10", ""):
        both = (
            results.seeds(STEP, f"{name}{end}", AVERAGED)
            for name in ("ensemble-accuracy", "accuracy")
        )
        found.append(compare_pairs(*([100 * value for value in values] for values in both)))
    assert [(each.pairs, each.by_interval) for each in found] == [(3, True), (3, True), (3, False)]
    five, ten, last = found
    assert f"by {five.difference:.1f} points ({five.low:.1f} to {five.high:.1f}) after 5" in SAID
    assert f"{ten.difference:.1f} ({ten.low:.1f} to {ten.high:.1f}) after 10" in SAID
    assert f"{last.difference:.2f} ({last.low:.1f} to +{last.high:.2f}) after 20" in SAID


@pytest.mark.parametrize(("method", "place"), [(FEDBE, 0), (PLAIN, 1)])
def test_students_are_surer_than_they_should_be(method: str, place: int) -> None:
    for metric in (ECE, NLL):
        assert pair(metric, method, AVERAGED)[3] == "interval"
    errors = [f"{float(results.line(STEP, m)[ECE]):.3f}" for m in (FEDBE, PLAIN, AVERAGED)]
    assert (
        "ECE is {} and {} with FedBE with and without SWA, {} with FedAvg".format(*errors) in SAID
    )
    higher = [f"{pair(NLL, m, AVERAGED)[0]:.2f}" for m in (FEDBE, PLAIN)]
    assert "and NLL {} and {} higher".format(*higher) in SAID
    together = [f"{float(results.line(STEP, m)[f'ensemble-{ECE}']):.3f}" for m in (FEDBE, PLAIN)]
    assert "their ensembles have {} and {}.".format(*together) in SAID
    assert float(together[place]) < float(errors[place])
