"""What the page on FedBE on CIFAR-10 says of FedBE with other methods is what its runs have."""

from __future__ import annotations

import json

import fedbe2021_results as results
from fedbe2021_results import AVERAGED, Difference, of_paper, rows_of_paper

from bfl.configuration import resolve
from bfl.experiments.studies import read_study

COMBINATIONS = "fedbe2021-combinations-cifar10"
SAID = results.said_under("### What three seeds say of combinations")


def found(method: str, clients: str = "with momentum") -> Difference:
    """Return what FedBE adds to a method, in points."""
    lines = f"{clients},FedBE + {method}", f"{clients},{method}"
    return results.difference(COMBINATIONS, "accuracy", *lines)


def theirs(method: str, table: str = "table2", **labels: str) -> float:
    """Return what FedBE adds to a method in the paper, in points."""
    labels = labels or {"partition": "step", "network": "ConvNet"}
    both = (of_paper(table, method=name, **labels) for name in (f"FedBE + {method}", method))
    return next(both) - next(both)


def accuracy(method: str, clients: str = "with momentum") -> str:
    return f"{float(results.line(COMBINATIONS, clients, method)['accuracy']):.1f}"


def test_every_line_has_three_seeds() -> None:
    assert [row["runs_done"] for row in results.rows(COMBINATIONS, "table.csv")] == ["3"] * 7


def test_fedbe_with_fedavgm_is_ahead() -> None:
    ours, there = found("FedAvgM"), theirs("FedAvgM")
    assert ours.order == "interval"
    numbers = *ours[:3], there
    assert "by {:.1f} points ({:.1f} to {:.1f}), published {:.1f}, which".format(*numbers) in SAID
    assert not ours.low <= there <= ours.high
    lines = "with momentum,FedProx", "with momentum,FedAvgM"
    below = results.difference(COMBINATIONS, "accuracy", *lines)
    assert below.order == "interval"
    words = "FedAvgM has {} %, {:.1f} points ({:.1f} to {:.1f}) below FedProx,"
    assert words.format(accuracy("FedAvgM"), *below[:3]) in SAID
    lines = "with momentum,FedBE + FedAvgM", "with momentum,FedProx"
    above = results.difference(COMBINATIONS, "accuracy", *lines)
    assert above.order == "not significant"
    assert "ahead of FedProx (+{:.1f}, {:.1f} to +{:.1f}):".format(*above[:3]) in SAID


def test_with_fedprox_and_scaffold_there_is_no_order() -> None:
    both = found("FedProx"), found("SCAFFOLD", "without momentum")
    assert {each.order for each in both} == {"not significant"}
    words = (f"{each.mean:.1f}, {each.low:.1f} to +{each.high:.1f}" for each in both)
    assert "there is no order** ({}; {}).".format(*words) in SAID
    there = theirs("FedProx")
    assert f"ahead by {there:.1f}, which the interval leaves out;" in SAID
    assert both[0].high < there
    assert "SCAFFOLD is published for ResNets alone." in SAID
    assert {row["network"] for row in rows_of_paper("scaffold")} == {"ResNet20", "ResNet32"}


def test_the_student_makes_as_many_steps_for_a_clients_as_is_said() -> None:
    """The paper's: 10,000 images in batches of 128, and 4,000 of a client in batches of 40."""
    run = read_study(results.ROOT / "configs/fedbe2021/combinations-cifar10.toml").runs()[1]
    values = resolve(dict(run.values), check_data=False).values
    student = -(-int(values["server-examples"]) // 128) * int(values["distillation-epochs"])
    client = 1_000 // int(values["batch-size"]) * int(values["local-epochs"])
    ratio = student / client / (79 * 20 / (100 * 20))
    section = results.said_under("## FedBE with other methods")
    words = f"{student} steps of the student beside {client} of a client, {ratio:.1f} times"
    assert words in section


def test_clients_without_momentum_do_learn() -> None:
    plain = accuracy(AVERAGED, "without momentum")
    assert f"FedAvg has {plain} %, so these clients do learn." in SAID
    assert float(plain) > 30, "ten classes: chance is 10 %"


def test_as_many_updates_were_refused_as_is_said() -> None:
    lost = {}
    for path in (results.RESULTS / COMBINATIONS / "runs").glob("*.json"):
        if count := json.loads(path.read_text("utf-8"))["lost"].get("refused", 0):
            lost[path.stem] = count
    line = "without-momentum-fedbe-+-scaffold"
    assert lost == {f"{line}_seed-1": 2, f"{line}_seed-2": 3}
    assert "the server refused 2 updates of seed 1 and 3 of seed 2, over all rounds" in SAID
