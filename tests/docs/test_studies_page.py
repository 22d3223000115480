"""What the page of scaled studies says in numbers, and of orders, is what its tables have."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
BENCHMARKS = ROOT / "benchmarks"
PUBLISHED = ROOT / "configs" / "ozer2022" / "published"
SAID = " ".join((RESULTS / "studies.md").read_text("utf-8").split())
AREA = "retention-area-accuracy-epistemic"
Row = dict[str, str]


def rows(name: str, **labels: str) -> list[Row]:
    text = (RESULTS / name / "table.csv").read_text("utf-8")
    return [row for row in csv.DictReader(text.splitlines()) if labels.items() <= row.items()]


def numbers(found: Iterable[Row], column: str, by: str = "aggregation") -> dict[str, float]:
    return {row[by]: float(row[column]) for row in found}


def test_fischers_order_with_iid_data_and_how_far_it_is() -> None:
    found = rows("fischer2024-table2", partition="iid")
    accuracy, area = numbers(found, "accuracy"), numbers(found, AREA)
    words = "{WS:.1f}, {WC:.1f} and {Conflation:.1f} % against {NWA:.1f} and {LP:.1f} % after 16"
    assert words.format(**accuracy) in SAID
    ahead, behind = ("WS", "WC", "Conflation"), ("NWA", "LP")
    distance = min(accuracy[rule] for rule in ahead) - max(accuracy[rule] for rule in behind)
    assert distance > 10 * 100 * math.sqrt(0.25 / 2000)
    assert "more than ten standard errors of such a share" in SAID
    published = numbers(found, "accuracy_published")
    assert min(published[rule] for rule in ahead) > max(published[rule] for rule in behind)
    assert {f"{area[rule] / 100:.2f}" for rule in ahead} == {"0.59"}
    assert all(area[rule] > accuracy[rule] for rule in ahead)
    assert (
        "{NWA:.2f} and {LP:.2f} at an accuracy of 0.25".format(
            **{rule: value / 100 for rule, value in area.items()}
        )
        in SAID
    )
    assert all(area[rule] < accuracy[rule] for rule in behind)
    below = accuracy["NWA"] - accuracy["LP"]
    assert f"The linear pool is {below:.1f} points below naive averaging" in SAID
    share = accuracy["NWA"] / 100
    assert below < 100 * math.sqrt(2 * share * (1 - share) / 2000)
    assert "({LP:.1f} against {NWA:.1f} %)".format(**published) in SAID.replace("published: ", "")


def test_forty_rounds_of_the_2_class_partition() -> None:
    found = rows("fischer2024-table2-40-rounds")
    accuracy, area = numbers(found, "accuracy"), numbers(found, AREA)
    published = numbers(found, "accuracy_published")
    words = "{:.2f} and {:.2f} % at the end, published {:.2f} and {:.2f} %"
    pairs = [table[rule] for table in (accuracy, published) for rule in ("WS", "NWA")]
    assert words.format(*pairs) in SAID
    shares = [table[rule] / 100 for rule in ("NWA", "WS") for table in (area, accuracy)]
    assert "{:.2f} at an accuracy of {:.2f}. That".format(*shares[:2]) in SAID
    assert "is {:.2f} at {:.2f} and does".format(*shares[2:]) in SAID
    assert all(area[rule] < accuracy[rule] for rule in accuracy)


def test_ozers_order_by_the_means() -> None:
    order = ("PPA", "EAA", "GAA", "CF", "N/A")
    for model in ("FVBA", "FVBWA"):
        points = {"FVBA": "FED", "FVBWA": "FEDAVG"}[model]
        for partition in ("iid", "non-iid"):
            found = [
                *rows("ozer2022-table1", model=model, partition=partition),
                *rows("ozer2022-table1", model=points, partition=partition),
            ]
            for column in ("negative-log-likelihood", "negative-log-likelihood_published"):
                nll = numbers(found, column)
                assert nll["PPA"] <= nll["EAA"] < min(nll["GAA"], nll["CF"])
                assert max(nll["GAA"], nll["CF"]) < nll["N/A"]
                if (model, partition) == ("FVBA", "iid"):
                    assert ", ".join(f"{nll[rule]:.2f}" for rule in order) in SAID
            bayesian = [row for row in found if row["aggregation"] != "N/A"]
            spread = numbers(bayesian, "degree-of-spread")
            assert max(spread, key=spread.__getitem__) == "PPA"
            assert set(sorted(spread, key=spread.__getitem__)[:2]) == {"GAA", "CF"}


def test_averaged_log_variances_beside_the_other_averages() -> None:
    found = rows("ozer2022-table1", model="FVBA", partition="iid", dataset="fmnist")
    ours = numbers(found, "negative-log-likelihood")
    published = numbers(found, "negative-log-likelihood_published")
    assert "(NLL {AALV:.2f} and {EAA:.2f}), in the paper".format(**ours) in SAID
    assert "as bad as GAA ({AALV:.2f} and {GAA:.2f})".format(**published) in SAID
    spread = numbers(found, "degree-of-spread")
    assert "EAA's spread is AALV's, {EAA:.2f}".format(**spread) in SAID
    assert f"{spread['EAA']:.2f}" == f"{spread['AALV']:.2f}"
    assert (
        "spread is at the floor, {GAA:.0e}, since".format(**spread).replace("e-06", "e-6") in SAID
    )


def test_precisions_differ_by_no_more_than_the_page_says() -> None:
    columns = {"accuracy": 0.7, "negative-log-likelihood": 0.003, AREA: 0.004}
    assert "at most 0.7 points of accuracy, 0.003 of NLL and 0.004 of the area" in SAID
    for rule in ("WS", "NWA"):
        found = rows("precision", aggregation=rule)
        for column, most in columns.items():
            values = numbers(found, column, by="precision")
            assert abs(values["float32"] - values["bfloat16"]) <= most + 5e-4


def _seconds(rows_of: Iterable[dict[str, Any]]) -> dict[int, dict[str, float]]:
    """Return our medians by number of processes and row."""
    found: dict[int, dict[str, float]] = {}
    for row in rows_of:
        name, processes = row["what"].split(", ")
        found.setdefault(int(processes.split()[0]), {})[name] = row["ours"]["median"]
    return found


def _published_seconds() -> dict[int, dict[str, float]]:
    """Return the paper's seconds by number of processes and row."""
    found: dict[int, dict[str, float]] = {}
    with (PUBLISHED / "table5.csv").open(encoding="utf-8", newline="") as stream:
        for line in csv.DictReader(stream):
            of_number = found.setdefault(int(line["processes"]), {})
            of_number[f"{line['model']} {line['aggregation']}"] = float(line["seconds_per_round"])
    return found


def _more(seconds: Mapping[str, float]) -> str:
    """Return how much more the Bayesian rows cost than the deterministic ones, in words."""
    points = [value for name, value in seconds.items() if "N/A" in name]
    ratios = [
        value / point for name, value in seconds.items() if "N/A" not in name for point in points
    ]
    return f"{100 * (min(ratios) - 1):.0f} to {100 * (max(ratios) - 1):.0f} %"


def _faster(seconds: Mapping[int, Mapping[str, float]], number: int, decimals: int) -> str:
    """Return how many times as fast as one process a number of them is, in words."""
    ratios = [alone / seconds[number][name] for name, alone in seconds[1].items()]
    return f"{min(ratios):.{decimals}f} to {max(ratios):.{decimals}f} times"


def _seconds_said(ours: dict[int, dict[str, float]]) -> list[str]:
    """Return what the page has to say of the seconds by number of processes, in words."""
    spans = {
        n: f"{min(of.values()):.1f} to {max(of.values()):.1f} s" for n, of in sorted(ours.items())
    }
    theirs = _published_seconds()
    costs = {n: [100 * (ours[n][name] / two - 1) for name, two in ours[2].items()] for n in (5, 10)}
    return [
        f"One process takes {spans[1]} a round, two {spans[2]}, "
        f"5 processes {spans[5]}, 10 processes {spans[10]};",
        f"published are {min(theirs[1].values()):.0f} to {max(theirs[1].values()):.0f} s with one",
        f"cost {_more(ours[1])} more than the deterministic ones here with one process, "
        f"and {_more(theirs[1])} more there",
        f"5 processes are {_faster(theirs, 5, 1)} as fast as one, "
        f"and 10 are {_faster(theirs, 10, 1)}.",
        f"Here two are {_faster(ours, 2, 2)} as fast, 5 are {_faster(ours, 5, 2)} "
        f"and 10 are {_faster(ours, 10, 2)}:",
        f"cost {min(costs[5]):.0f} to {max(costs[5]):.0f} % more time than two (5) "
        f"or {min(costs[10]):.0f} to {max(costs[10]):.0f} % (10)",
    ]


def test_seconds_by_processes() -> None:
    content = json.loads((RESULTS / "benchmarks" / "seconds_by_processes.json").read_text("utf-8"))
    ours = _seconds(content["rows"])
    assert sorted(ours) == [1, 2, 5, 10]
    assert {len(of_number) for of_number in ours.values()} == {12}
    said = _seconds_said(ours)
    assert all(words in SAID for words in said), [words for words in said if words not in SAID]


def test_more_processes_than_processors_are_told_in_the_notes() -> None:
    """Of the paper's seconds, those by the numbers of processes that are quoted in no row."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        from seconds_by_processes import notes
    finally:
        sys.path.remove(str(BENCHMARKS))
    for processes in ([1, 2], [1, 2, 5, 10]):
        told = notes(processes, cpus=2)
        assert "with 5 processes 15.6 to 18.1 s, with 10 processes 9.2 to 11.2 s" in told[1]
        assert len(told) == (3 if 5 in processes else 2)
    assert told[2].startswith("5 and 10 processes share 2 CPUs")
    assert len(notes([1, 2, 5, 10], cpus=12)) == 2
