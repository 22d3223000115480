"""What the page on Ozer et al.'s tables says of 100 clients is what the runs of Table 3 have."""

from __future__ import annotations

import csv
import json
from functools import cache
from statistics import fmean

import pytest
from ozer2022_results import NLL, RESULTS, ROOT, lines, pairs, section, spreads_derived
from scipy import stats

OF_100 = section("What the first runs say of Table 3")
WRITTEN_100, CODED_100 = "ozer2022-table3-fashion-mnist", "ozer2022-as-coded-table3-fashion-mnist"


@cache
def seeds(study: str, rule: str, metric: str) -> list[float]:
    """Return a rule's numbers under the non-IID partition, in the order of the seeds."""
    with (RESULTS / study / "seeds.csv").open(encoding="utf-8", newline="") as stream:
        rows = [
            (int(row["seed"]), float(row[metric]))
            for row in csv.DictReader(stream)
            if (row["aggregation"], row["partition"]) == (rule, "non-iid") and row[metric]
        ]
    return [value for _, value in sorted(rows)]


def test_what_has_been_run_of_table_3() -> None:
    for study, counts in ((WRITTEN_100, "222"), (CODED_100, "525")):
        done = {
            key: row["runs_done"] for key, row in lines(study).items() if row["runs_done"] != "0"
        }
        rules = ("EAA", "GAA", "AALV")
        assert done == {(rule, "non-iid"): count for rule, count in zip(rules, counts, strict=True)}


def test_averaged_variances_of_100_clients_fail_as_coded_and_not_as_written() -> None:
    words = []
    for metric, scale, decimals in (("accuracy", 1.0, 1), (NLL, -1.0, 2)):
        row = pairs(CODED_100)["non-iid", metric, "EAA", "AALV"]
        assert (row["pairs"], row["order"]) == ("5", "interval")
        ends = sorted(-scale * float(row[end]) for end in ("low_95", "high_95"))
        behind = -scale * float(row["one_minus_other"])
        words.append(f"{behind:.{decimals}f}")
        words.append("({:.{d}f} to {:.{d}f})".format(*ends, d=decimals))
    said = "in each of the five seeds, by {} points of accuracy {} and {} of NLL {};"
    assert said.format(*words) in OF_100
    for metric, sign in (("accuracy", 1.0), (NLL, -1.0)):
        both = (seeds(CODED_100, rule, metric) for rule in ("AALV", "EAA"))
        assert all(sign * (aalv - eaa) > 0 for aalv, eaa in zip(*both, strict=True))
    with (ROOT / "configs/ozer2022/published/table3.csv").open(encoding="utf-8") as stream:
        theirs = {
            row["aggregation"]: row
            for row in csv.DictReader(stream)
            if (row["dataset"], row["model"], row["partition"]) == ("fmnist", "FVBWA", "non-iid")
        }
    points, nll = (
        float(theirs["AALV"][column]) - float(theirs["EAA"][column])
        for column in ("accuracy_pct", "nll")
    )
    assert f"published are {points:.1f} points and {-nll:.2f}" in OF_100


def judged(study: str, rule: str, metric: str, rounds: int) -> list[float]:
    """Return a rule's numbers after a round, under the non-IID partition, by seed."""
    found = []
    for path in sorted((RESULTS / study / "runs").glob(f"*-{rule.lower()}_fmnist_non-iid_*.json")):
        of_rounds = json.loads(path.read_text("utf-8"))["rounds"]
        found.append(float(of_rounds[metric][of_rounds["round"].index(rounds)]))
    return found


def test_the_interval_of_the_likelihood_depends_on_what_is_drawn() -> None:
    said = []
    for metric, scale, decimals in (("accuracy", 100.0, 1), (NLL, -1.0, 2)):
        aalv, eaa = (judged(CODED_100, rule, metric, 500) for rule in ("AALV", "EAA"))
        behind = [scale * (one - other) for one, other in zip(aalv, eaa, strict=True)]
        assert len(behind) == 5
        low, high = stats.t.interval(0.95, 4, fmean(behind), stats.sem(behind))
        said.append(f"{fmean(behind):.{decimals}f} ({low:.{decimals}f} to {high:.{decimals}f})")
    assert "after round 500, these are {} and {}, so that NLL alone".format(*said) in OF_100
    row = pairs(CODED_100)["non-iid", "accuracy", "EAA", "GAA"]
    assert (row["pairs"], row["order"]) == ("2", "not significant")


def test_it_is_the_clamp_of_partial_sums() -> None:
    study, without = "ozer2022-as-coded-clamp-of-sums", "EAA without the clamp of sums"

    def rows(name: str) -> list[dict[str, str]]:
        with (RESULTS / study / name).open(encoding="utf-8", newline="") as stream:
            return list(csv.DictReader(stream))

    said = []
    for metric, scale, decimals in (("accuracy", 1.0, 1), (NLL, -1.0, 2)):
        (row,) = (
            row
            for row in rows("pairs.csv")
            if (row["metric"], row["one_aggregation"], row["other_aggregation"])
            == (metric, "EAA", without)
        )
        assert (row["pairs"], row["order"]) == ("5", "interval")
        ends = sorted(-scale * float(row[end]) for end in ("low_95", "high_95"))
        numbers = [-scale * float(row["one_minus_other"]), *ends]
        said += [f"{number:.{decimals}f}" for number in numbers]
        by_rule = {
            rule: {
                r["seed"]: float(r[metric]) for r in rows("seeds.csv") if r["aggregation"] == rule
            }
            for rule in ("EAA", without)
        }
        assert by_rule[without].keys() == by_rule["EAA"].keys() == set("01234")
        both = [(by_rule[without][seed], by_rule["EAA"][seed]) for seed in "01234"]
        assert all(scale * (freed - clamped) > 0 for freed, clamped in both)
    assert (
        "EAA as coded is {} points ({} to {}) and {} of NLL ({} to {}) better, in each of the "
        "five seeds".format(*said)
    ) in OF_100
    (row,) = (
        row
        for row in rows("pairs.csv")
        if (row["metric"], row["one_aggregation"], row["other_aggregation"])
        == ("accuracy", without, "AALV")
    )
    assert row["order"] == "not significant"
    numbers = [abs(float(row["one_minus_other"])), float(row["low_95"]), float(row["high_95"])]
    assert "behind AALV ({:.1f} points, {:.1f} to +{:.1f})".format(*numbers) in OF_100
    spread = {row["aggregation"]: float(row["degree-of-spread"]) for row in rows("table.csv")}
    assert f"spread is then {spread[without]:.1f}, where it was {spread['EAA']:.1f}." in OF_100


def test_averaged_variances_and_log_variances_as_written_do_not_part() -> None:
    both = zip(*(seeds(WRITTEN_100, rule, "accuracy") for rule in ("EAA", "AALV")), strict=True)
    ahead = [f"{100 * (eaa - aalv):.2f}" for eaa, aalv in both]
    assert "They differ by {} and {} points in the end".format(*ahead) in OF_100
    images = [f"{float(points) * 100:.0f}" for points in ahead]
    assert "{} and {} of 10,000 images".format(*images) in OF_100
    late = [
        100 * (eaa - aalv)
        for rounds in (400, 450, 500)
        for eaa, aalv in zip(
            *(judged(WRITTEN_100, rule, "accuracy", rounds) for rule in ("EAA", "AALV")),
            strict=True,
        )
    ]
    assert len(late) == 6
    assert min(late) < 0 < max(late)
    assert f"by at most {max(map(abs, late)):.2f}, to either side, in rounds 400" in OF_100
    likelihood = pairs(WRITTEN_100)["non-iid", NLL, "EAA", "AALV"]
    assert f"differs by {abs(float(likelihood['one_minus_other'])):.3f} on average" in OF_100
    (spread,) = {
        f"{float(lines(WRITTEN_100)[rule, 'non-iid']['degree-of-spread']):.2f}"
        for rule in ("EAA", "AALV")
    }
    assert f"The two have one spread, {spread}." in OF_100
    row = pairs(WRITTEN_100)["non-iid", "accuracy", "EAA", "GAA"]
    behind, hidden = float(row["one_minus_other"]), -float(row["low_95"])
    assert f"GAA is {behind:.1f} points behind, but with two seeds {hidden:.1f} ahead" in OF_100


def test_what_is_said_of_gaa_with_100_clients() -> None:
    row = pairs(WRITTEN_100)["non-iid", "accuracy", "GAA", "AALV"]
    assert row["order"] == "not significant"
    assert f"(accuracy {float(row['low_95']):.1f} to +{float(row['high_95']):.1f} points)" in OF_100
    gaa = lines(WRITTEN_100)["GAA", "non-iid"]
    assert f"GAA's spread is {float(gaa['degree-of-spread']):.0e}:" in OF_100
    gains = [
        f"{float(lines(WRITTEN_100)[rule, 'non-iid']['retention-gain-accuracy-epistemic']):.1f}"
        for rule in ("GAA", "EAA", "AALV")
    ]
    assert gains[0] == "0.0"
    assert gains[1] == gains[2]
    assert f"where EAA and AALV gain {gains[1]} points each" in OF_100


def test_the_spreads_with_100_clients_are_near_to_those_that_were_derived() -> None:
    derived = spreads_derived(100)
    said = []
    for rule, column, study in (
        ("EAA", 1, CODED_100),
        ("EAA", 0, WRITTEN_100),
        ("AALV", 1, CODED_100),
        ("AALV", 0, WRITTEN_100),
        ("GAA", 1, CODED_100),
    ):
        found, wanted = (
            float(lines(study)[rule, "non-iid"]["degree-of-spread"]),
            float(derived[rule][column]),
        )
        assert found == pytest.approx(wanted, rel=0.04)
        assert "**The spreads** are within 4 % of those" in OF_100
        decimals = 1 if wanted > 10 else 2
        said += [f"{found:.{decimals}f}", f"{wanted:.{decimals}f}"]
    assert (
        "EAA {} as coded (derived {}) and {} as written ({}), AALV {} and {} ({} and {}), "
        "GAA {} as coded ({})".format(*said[:4], said[4], said[6], said[5], said[7], *said[8:])
        in OF_100
    )
