"""What the page on FedBE on CIFAR-10 says of two seeds of step is what its runs have."""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path

import pytest

from bfl.configuration import resolve
from bfl.experiments.studies import read_study

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
STEP = RESULTS / "fedbe2021-step-cifar10"
PAGE = (RESULTS / "fedbe2021.md").read_text("utf-8")
SAID = " ".join(PAGE.split("### What two seeds say of step")[1].split("\n## ")[0].split())
ECE, NLL = "expected-calibration-error", "negative-log-likelihood"
FEDBE, PLAIN, DISTILLED, AVERAGED = "FedBE", "FedBE without SWA", "v-Distillation", "FedAvg"

Row = dict[str, str]


@cache
def lines() -> dict[str, Row]:
    with (STEP / "table.csv").open(encoding="utf-8", newline="") as stream:
        return {row["method"]: row for row in csv.DictReader(stream)}


def pair(metric: str, one: str, other: str, scale: float = 1.0) -> tuple[float, float, float, str]:
    """Return one line minus another, its interval, and what is known of the order."""
    with (STEP / "pairs.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            methods = (row["one_method"], row["other_method"])
            if row["metric"] == metric and set(methods) == {one, other}:
                assert row["pairs"] == "2"
                sign = scale if methods == (one, other) else -scale
                ends = sorted(sign * float(row[end]) for end in ("low_95", "high_95"))
                return sign * float(row["one_minus_other"]), ends[0], ends[1], row["order"]
    raise AssertionError((metric, one, other))


def seeds(method: str, metric: str) -> list[float]:
    with (STEP / "seeds.csv").open(encoding="utf-8", newline="") as stream:
        found = [row for row in csv.DictReader(stream) if row["method"] == method]
    return [float(row[metric]) for row in sorted(found, key=lambda row: int(row["seed"]))]


@cache
def published() -> dict[str, float]:
    with (ROOT / "configs/fedbe2021/published/table1.csv").open(encoding="utf-8") as stream:
        return {
            row["method"]: float(row["accuracy_pct"])
            for row in csv.DictReader(stream)
            if (row["partition"], row["network"]) == ("step", "ConvNet")
        }


def test_every_line_has_two_seeds() -> None:
    assert {row["runs_done"] for row in lines().values()} == {"2"}


def test_v_distillation_is_last() -> None:
    ahead = [pair("accuracy", method, DISTILLED) for method in (FEDBE, PLAIN, AVERAGED)]
    words = "by {:.1f} points and FedBE without SWA by {:.1f}, by the interval; FedAvg is by {:.1f}"
    assert words.format(*(mean for mean, *_ in ahead)) in SAID
    assert [order for *_, order in ahead] == ["interval", "interval", "not significant"]
    theirs = [published()[m] - published()[DISTILLED] for m in (FEDBE, PLAIN, AVERAGED)]
    assert "Published are {:.1f}, {:.1f} and {:.1f}.".format(*theirs) in SAID


def test_fedbe_is_not_found_ahead_of_fedavg() -> None:
    _, low, high, order = pair("accuracy", FEDBE, AVERAGED)
    assert order == "not significant"
    theirs = published()[FEDBE] - published()[AVERAGED]
    assert high < theirs
    assert f"as published by {theirs:.1f} points" in SAID
    assert f"and the interval ({low:.1f} to +{high:.1f}) leaves out" in SAID
    both = zip(seeds(AVERAGED, "accuracy"), seeds(FEDBE, "accuracy"), strict=True)
    behind = [f"{100 * (fedavg - fedbe):.1f}" for fedavg, fedbe in both]
    assert "behind in both seeds, by {} and {},".format(*behind) in SAID
    mean, low, high, order = pair("accuracy", FEDBE, PLAIN)
    assert order == "not significant"
    theirs = published()[FEDBE] - published()[PLAIN]
    assert f"{mean:.1f} points ({low:.1f} to +{high:.1f}), published {theirs:.1f}." in SAID


def test_distilling_leads_early_and_is_overtaken() -> None:
    early, ten = (pair(f"accuracy-at-round-{n}", PLAIN, AVERAGED) for n in (5, 10))
    late = pair("accuracy", AVERAGED, PLAIN)
    assert [early[3], ten[3], late[3]] == ["interval", "not significant", "not significant"]
    assert "is {:.1f} points ({:.1f} to {:.1f}) ahead of FedAvg after 5".format(*early) in SAID
    assert "{:.1f} ({:.1f} to +{:.1f}) after 10".format(*ten) in SAID
    assert "behind by {:.1f} ({:.1f} to +{:.1f}) after 20".format(*late) in SAID
    falls = list(
        zip(seeds(DISTILLED, "accuracy-at-round-10"), seeds(DISTILLED, "accuracy"), strict=True)
    )
    assert len(falls) == 2
    assert all(ten_rounds > twenty for ten_rounds, twenty in falls)
    of_line = lines()[DISTILLED]
    ends = [float(of_line[column]) for column in ("accuracy-at-round-10", "accuracy")]
    assert "from {:.1f} % on average after 10 rounds to {:.1f}.".format(*ends) in SAID
    after_five = [
        pair("accuracy-at-round-5", DISTILLED, method)[3] for method in (FEDBE, PLAIN, AVERAGED)
    ]
    assert set(after_five) == {"not significant"}
    mean, _, _, order = pair("accuracy-at-round-10", FEDBE, DISTILLED)
    assert order == "interval"
    assert f"after 10 it is {mean:.1f} points behind FedBE, by the interval" in SAID


def test_the_rates_fall_where_the_page_says() -> None:
    run = read_study(ROOT / "configs/fedbe2021/step-cifar10.toml").runs()[0]
    values = resolve(dict(run.values), check_data=False).values
    shares = str(values["lr-milestones"]).split(",")
    rounds = [round(float(share) * int(values["rounds"])) for share in shares]
    assert "The clients' rate falls after rounds {} and {},".format(*rounds) in SAID
    assert 10_000 / int(values["server-examples"]) == 2.5


def test_the_ensemble_of_fedavg_is_no_better_than_its_model() -> None:
    verdict = re.search(
        r"FedAvg ensemble's accuracy .*: no significant order \((.*?), (.*?), 2 seeds", PAGE
    )
    assert verdict
    mean, interval = verdict.groups()
    assert f"({float(mean):.2f} points, {interval})" in SAID


@pytest.mark.parametrize(("method", "place"), [(FEDBE, 0), (PLAIN, 1)])
def test_students_are_surer_than_they_should_be(method: str, place: int) -> None:
    for metric in (ECE, NLL):
        assert pair(metric, method, AVERAGED)[3] == "interval"
    errors = [f"{float(lines()[m][ECE]):.3f}" for m in (FEDBE, PLAIN, AVERAGED)]
    assert (
        "ECE is {} and {} with FedBE with and without SWA, {} with FedAvg".format(*errors) in SAID
    )
    higher = [f"{pair(NLL, m, AVERAGED)[0]:.2f}" for m in (FEDBE, PLAIN)]
    assert "and NLL {} and {} higher".format(*higher) in SAID
    together = [f"{float(lines()[m][f'ensemble-{ECE}']):.3f}" for m in (FEDBE, PLAIN)]
    assert "their ensembles have {} and {}.".format(*together) in SAID
    assert float(together[place]) < float(errors[place])
