"""What the page on FedBE on CIFAR-10 says of fewer epochs of distillation is what its runs have."""

from __future__ import annotations

from functools import partial

import fedbe2021_results as results
import pytest
from fedbe2021_results import DISTILLED, FEDBE, NLL, PLAIN, published

from bfl.configuration import resolve
from bfl.experiments.studies import read_study

STUDY, AVERAGED = "fedbe2021-shorter-distillation-cifar10", "FedAvg,none"
SECTION = results.said_under("## Step, with fewer epochs of distillation")
SAID = results.said_under("### What three seeds say of fewer epochs")
pair = partial(results.difference, STUDY)


def test_three_seeds_have_been_made_of_every_line() -> None:
    assert {row["runs_done"] for row in results.rows(STUDY, "table.csv")} == {"3"}


def test_the_steps_of_the_student_and_of_a_client_are_as_said() -> None:
    """The paper's: 10,000 images in batches of 128, and 4,000 of a client in batches of 40."""
    study = read_study(results.ROOT / "configs/fedbe2021/shorter-distillation-cifar10.toml")
    steps = {}
    for run in study.runs():
        values = resolve(dict(run.values), check_data=False).values
        if "distillation-epochs" not in values:
            continue
        batches = -(-int(values["server-examples"]) // int(values["distillation-batch-size"]))
        steps[run.labels["epochs"]] = batches * int(values["distillation-epochs"])
        shared = int(values["train-examples"]) - int(values["server-examples"])
        of_a_client = shared // int(values["clients"]) // int(values["batch-size"])
        client = of_a_client * int(values["local-epochs"])
    paper = -(-10_000 // 128) * 20, 4_000 // 40 * 20
    first = f"20 epochs is {steps['20']} steps of the student beside {client} of a client"
    assert first in SECTION
    assert f"in the paper it is {paper[0]:,} beside {paper[1]:,}." in SECTION
    assert f"With 6 epochs it is {steps['6']}," in SECTION
    assert steps["6"] / client == pytest.approx(paper[0] / paper[1], rel=0.05)
    above = results.said_under("### What six seeds say of step")
    ratios = f"takes {steps['20'] / client:.1f} steps for one of a client's, in the paper"
    assert f"{ratios} {paper[0] / paper[1]:.1f}, is [tried" in above


def test_with_fewer_epochs_fedbe_is_still_behind() -> None:
    more, plain = (pair("accuracy", f"{m},6", f"{m},20") for m in (FEDBE, PLAIN))
    assert (more.order, plain.order) == ("interval", "not significant")
    assert more.mean > 0
    said = "With 6 it is {:.1f} points ({:.1f} to {:.1f}) above itself with 20".format(*more[:3])
    assert said in SAID
    study = read_study(results.ROOT / "configs/fedbe2021/shorter-distillation-cifar10.toml")
    averaged = {
        run.labels["epochs"]: resolved.refinement.plan(4_000, 10).collected.sum()
        for run in study.runs()
        if run.labels["method"] == FEDBE
        and (resolved := resolve(dict(run.values), check_data=False))
    }
    assert f"of the {averaged['6']} models that are averaged, and not {averaged['20']}," in SAID
    said = "no order of 6 epochs and 20 ({:.1f}, {:.1f} to +{:.1f})".format(*plain[:3])
    assert said in SAID
    fedavg = [pair("accuracy", AVERAGED, f"{m},6") for m in (FEDBE, PLAIN)]
    assert {each.order for each in fedavg} == {"interval"}
    behind, ahead = ("{:.1f}{} ({:.1f} to {:.1f})".format(d[0], "{}", *d[1:3]) for d in fedavg)
    lead = published()[FEDBE] - published()["FedAvg"]
    said = f"still {behind.format('')} behind FedAvg; published is a lead of {lead:.1f}."
    assert said in SAID
    assert f"and FedAvg is {ahead.format(' points')} ahead" in SAID


def test_with_averaged_models_nll_is_lower_with_fewer_epochs() -> None:
    lower, plain = (pair(NLL, f"{m},20", f"{m},6") for m in (FEDBE, PLAIN))
    assert (lower.order, plain.order) == ("interval", "not significant")
    assert "with SWA**, by {:.3f} ({:.3f} to {:.3f});".format(*lower[:3]) in SAID
    assert "no order is found ({:.3f}, {:.3f} to +{:.3f}).".format(*plain[:3]) in SAID
    above = pair(NLL, f"{FEDBE},6", AVERAGED)
    assert above.order == "interval"
    assert f"still {above.mean:.2f} above FedAvg's" in SAID


def test_v_distillation_stays_last() -> None:
    lines = {
        row["method"]: float(row["accuracy"])
        for row in results.rows(STUDY, "table.csv")
        if row["epochs"] == "6"
    }
    assert min(lines, key=lambda method: lines[method]) == DISTILLED
    ahead = pair("accuracy", f"{FEDBE},6", f"{DISTILLED},6")
    assert ahead.order == "interval"
    assert f"FedBE with 6 epochs is {ahead.mean:.1f} points ahead of it with as many" in SAID
    own = pair("accuracy", f"{DISTILLED},6", f"{DISTILLED},20")
    assert own.order == "not significant"
    assert "6 epochs and 20 (+{:.1f}, {:.1f} to +{:.1f}).".format(*own[:3]) in SAID
