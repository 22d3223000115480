"""What the page on FedBE on CIFAR-10 says of other rates is what its runs have."""

from __future__ import annotations

from functools import partial

import fedbe2021_results as results
import numpy as np
import pytest
from fedbe2021_results import ECE, NLL, PLAIN, Difference

from bfl.configuration import resolve
from bfl.experiments.studies import read_study
from bfl.experiments.studies.paired import compare_pairs

STUDY, AVERAGED = "fedbe2021-rates-cifar10", "FedAvg"
SECTION = results.said_under("## Step, with other rates")
SAID = results.said_under("### What three seeds say of rates")
KEPT, FALLING = "constant", "falling"
pair = partial(results.difference, STUDY)


def seeds(metric: str, method: str, rates: str) -> list[float]:
    return results.seeds(STUDY, metric, method, rates)


def lead(metric: str, rates: str) -> Difference:
    """Return FedBE's without SWA over averaging."""
    return pair(metric, f"{PLAIN},{rates}", f"{AVERAGED},{rates}")


def test_three_seeds_have_been_made_of_the_lines_that_are_compared() -> None:
    done = {(row["method"], row["rates"]): row for row in results.rows(STUDY, "table.csv")}
    for method in (AVERAGED, PLAIN):
        for rates in (KEPT, FALLING):
            assert done[method, rates]["runs_done"] == "3"


def test_the_rates_are_as_said() -> None:
    study = read_study(results.ROOT / "configs/fedbe2021/rates-cifar10.toml")
    for run in study.runs():
        configuration = resolve(dict(run.values), check_data=False)
        values, schedule = configuration.values, configuration.schedule
        shares = [schedule.learning_rate(1.0, number, 20) for number in (1, 6, 7, 12, 13)]
        kept = run.labels["rates"] == KEPT
        assert values["rounds"] == 20
        assert shares == pytest.approx([1, 1, 1, 1, 1] if kept else [1, 1, 0.1, 0.1, 0.01])
        if run.labels["method"] == PLAIN:
            tenth = run.labels["rates"] not in (KEPT, FALLING)
            assert values["distillation-learning-rate"] == (1e-4 if tenth else 1e-3)
    assert "is a tenth from round 7 on and a hundredth from round 13 on" in SECTION


@pytest.mark.parametrize("method", [AVERAGED, PLAIN])
def test_until_the_rate_falls_nothing_differs(method: str) -> None:
    first = "accuracy-at-round-5"
    assert seeds(first, method, KEPT) == seeds(first, method, FALLING)
    assert seeds("accuracy", method, KEPT) != seeds("accuracy", method, FALLING)


def test_the_lead_stays_where_the_rate_does() -> None:
    ahead, behind = lead("accuracy", KEPT), lead("accuracy", FALLING)
    assert (ahead.order, behind.order) == ("interval", "not significant")
    published = results.published()
    assert f"The paper's lead without SWA is {published[PLAIN] - published[AVERAGED]:.1f}" in SAID
    said = "by {:.1f} points ({:.1f} to {:.1f}) after 20 rounds".format(*ahead[:3])
    assert f"FedBE without SWA stays ahead of FedAvg**, {said}" in SAID
    assert "({:.1f}, {:.1f} to +{:.1f})".format(*behind[:3]) in SAID


def test_the_lead_itself_depends_on_the_rate() -> None:
    """The difference of two differences, by seed."""
    kept, falling = (
        np.subtract(seeds("accuracy", PLAIN, rates), seeds("accuracy", AVERAGED, rates))
        for rates in (KEPT, FALLING)
    )
    found = compare_pairs([*(100 * kept)], [*(100 * falling)])
    assert found.by_interval
    interval = found.difference, found.low, found.high
    assert "greater by {:.1f} points ({:.1f} to {:.1f})".format(*interval) in SAID


def test_both_gain_by_a_rate_that_stays() -> None:
    gains = [pair("accuracy", f"{m},{KEPT}", f"{m},{FALLING}") for m in (AVERAGED, PLAIN)]
    assert {gain.order for gain in gains} == {"interval"}
    of_fedavg, of_fedbe = ("{:.1f}{} ({:.1f} to {:.1f})".format(g[0], "{}", *g[1:3]) for g in gains)
    said = f"FedAvg by {of_fedavg.format(' points')} and FedBE without SWA by {of_fedbe.format('')}"
    assert said in SAID


def test_the_student_is_then_no_worse_calibrated() -> None:
    lower, same = lead(NLL, KEPT), lead(ECE, KEPT)
    assert lower.order == "interval"
    assert lower.mean < 0
    assert same.order == "not significant"
    assert f"by {-lower.mean:.3f} ({-lower.high:.3f} to {-lower.low:.3f})" in SAID
    higher = lead(NLL, FALLING)
    assert higher.order == "interval"
    assert "leaves it {:.3f} ({:.3f} to {:.3f}) higher".format(*higher[:3]) in SAID
    assert "({:+.3f}, {:.3f} to {:+.3f})".format(*same[:3]) in SAID
