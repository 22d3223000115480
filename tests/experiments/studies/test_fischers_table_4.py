"""Fischer et al.'s Table 4: one round of many epochs, with and without pre-training."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from bfl.configuration import resolve
from bfl.experiments.studies import read_study
from bfl.experiments.studies.study import Order

FISCHER = Path(__file__).resolve().parents[3] / "configs" / "fischer2024"


@pytest.mark.parametrize(("name", "partitions"), [("table4", 4), ("table4-fashion-mnist", 2)])
def test_the_pretrained_rows_have_one_pretraining(name: str, partitions: int) -> None:
    """What the pooling does comes after it; all that pre-training reads is the same."""
    after = {"strategy", "pooling", "weighting", "prior"}
    by_seed_and_partition: dict[str, list[dict[str, object]]] = {}
    study = read_study(FISCHER / f"{name}.toml")
    for run in study.runs():
        configuration = resolve(run.values)
        if run.labels["pretrain"] != "yes":
            continue
        prior = configuration.replace(prior=configuration.words["pretrain-prior"]).values
        later = after | configuration.pooling.model_dump(by_alias=True).keys()
        read = {key: value for key, value in prior.items() if key not in later}
        group = f"{run.labels['seed']} {run.labels['partition']}"
        by_seed_and_partition.setdefault(group, []).append(read)
    seeds = {run.labels["seed"] for run in study.runs()}
    assert len(by_seed_and_partition) == len(seeds) * partitions
    for dwc, ws in by_seed_and_partition.values():
        assert dwc == ws
        assert dwc["pretrain-examples"] == 0.1
        assert dwc["prior-scale"] == 10.0


def test_a_spread_that_looks_like_a_fraction_is_shown_in_percent() -> None:
    study = read_study(FISCHER / "table4.toml")
    assert study.published is not None
    spreads = {
        (dict(key)["aggregation"], dict(key)["partition"]): entry["accuracy"].spread
        for key, entry in study.published.lines.items()
        if dict(key)["pretrain"] == "yes"
    }
    assert spreads["WS", "iid"] == pytest.approx(0.8), "printed as 0.008"
    assert spreads["WS", "dirichlet-5.0"] == pytest.approx(2.0)
    assert spreads["WS", "2-class"] == pytest.approx(1.02)
    assert spreads["DWC", "iid"] == pytest.approx(0.27)
    assert "looks like a fraction" in study.published.notes[0]
    nll = study.published.lines[
        next(k for k in study.published.lines if ("aggregation", "WS") in k)
    ]
    assert nll["negative-log-likelihood"].spread == pytest.approx(0.017), "as it is printed"


def test_the_orders_of_the_reduced_table_are_the_published_ones() -> None:
    study = read_study(FISCHER / "table4-fashion-mnist.toml")
    with_it, without = ({"aggregation": "DWC", "pretrain": word} for word in ("yes", "no"))
    assert study.orders == (
        Order("accuracy", with_it, without),
        Order("negative-log-likelihood", with_it, without),
    )
    with (FISCHER / "published" / "table4.csv").open(encoding="utf-8", newline="") as stream:
        published = {
            (line["aggregation"], line["pretrain"], line["partition"]): line
            for line in csv.DictReader(stream)
        }
    pairs = study.orders[0].pairs(study.cells())
    assert len(pairs) == 2
    for better, worse in pairs:
        lines = [
            published[tuple(cell.labels[key] for key in ("aggregation", "pretrain", "partition"))]  # type: ignore[index]
            for cell in (better, worse)
        ]
        assert float(lines[0]["accuracy_pct"]) > float(lines[1]["accuracy_pct"])
        assert float(lines[0]["nll"]) < float(lines[1]["nll"])


def test_the_rows_of_the_reduced_table_are_those_of_the_whole() -> None:
    """But for the data, the network and the augmentation that goes with them."""
    reduced, whole = (
        {
            (run.labels["aggregation"], run.labels["pretrain"]): resolve(run.values).values
            for run in read_study(FISCHER / f"{name}.toml").runs()
            if (run.labels["seed"], run.labels["partition"]) == ("0", "iid")
        }
        for name in ("table4-fashion-mnist", "table4")
    )
    data = {"dataset", "image-size", "train-examples", "model", "augmentation", "client-timeout"}
    of_augmentation = {"crop-padding", "crop-padding-with"}
    assert reduced.keys() == whole.keys()
    for row, values in whole.items():
        differing = {key for key in values if values[key] != reduced[row].get(key)}
        assert {"dataset", "train-examples", "model"} <= differing <= data | of_augmentation, row
