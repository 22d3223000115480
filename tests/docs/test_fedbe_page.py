"""What the page on FedBE says in numbers is what was measured."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from bfl.configuration import resolve
from bfl.configuration.sources import read_toml
from bfl.experiments.studies import read_study

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
STEPS = ("optimizer", "momentum", "learning-rate", "weight-decay", "batch-size")
DOCS = Path(__file__).resolve().parents[2] / "docs"
SAID = " ".join((DOCS / "fedbe.md").read_text("utf-8").split())


def test_the_servers_step_takes_what_the_benchmark_has_found() -> None:
    found = json.loads((DOCS / "results" / "benchmarks" / "server_step.json").read_text("utf-8"))
    rows = {row["what"]: row for row in found["rows"]}
    whole, memory = rows["ConvNet, the whole step"], rows["ResNet-56, a run's memory, RSS"]
    seconds = [
        row["median"]
        for row in (
            whole["ours"],
            whole["reference"],
            rows["ConvNet, their predictions"]["ours"],
            rows["ConvNet, the student"]["ours"],
        )
    ]
    words = (
        "it takes {:.0f} s on two cores, where the authors' code took {:.0f} s, on another machine "
        "of two: {:.0f} s for the"
    )
    assert words.format(*seconds) in SAID
    assert f"and {seconds[3]:.0f} s for 1,580 steps of the student" in SAID
    threads, alone = (
        rows[f"ConvNet, the whole step, {limit}"]["ours"]["median"]
        for limit in ("server-threads=2", "one CPU")
    )
    assert f"With `server-threads=2` it takes {threads:.0f} s, and on one CPU {alone:.0f} s" in SAID
    assert whole["ours"]["median"] < whole["reference"]["median"] / 4
    assert f"takes {memory['ours']['median'] / 1000:.1f} GB at most" in SAID
    assert whole["met"]
    assert memory["met"]


def test_sampled_models_on_the_swiss_roll_are_as_the_paper_shows_them() -> None:
    def rows(name: str) -> list[dict[str, str]]:
        text = (DOCS / "results" / "fedbe2021-figure1" / name).read_text("utf-8")
        return list(csv.DictReader(text.splitlines()))

    best, kinds = "ensemble-best-member-accuracy", ("samples", "clients")
    [line] = rows("table.csv")
    assert f"the best of 200 samples classifies {float(line[best]):.1f} %" in SAID
    assert f"the average {float(line['accuracy']):.1f} %, and in each seed it is the" in SAID
    accuracies = [float(line[f"ensemble-{kind}-accuracy"]) for kind in kinds]
    assert "by itself {:.1f} % and one client {:.1f} %".format(*accuracies) in SAID
    errors = [float(line[f"ensemble-{kind}-expected-calibration-error"]) for kind in kinds]
    assert "calibration errors of {:.2f} and {:.2f}".format(*errors) in SAID
    seeds = rows("seeds.csv")
    assert "With five seeds" in SAID
    assert len(seeds) == 5
    assert all(float(seed[best]) > float(seed["accuracy"]) for seed in seeds)


def test_that_an_ensemble_beats_the_average_on_the_swiss_roll_is_not_found() -> None:
    """What the paper shows in one run; that it beats its members is found in each seed."""
    folder = DOCS / "results" / "fedbe2021-swiss-roll"
    seeds = list(csv.DictReader((folder / "seeds.csv").read_text("utf-8").splitlines()))
    assert "as means over five seeds ([results](results/fedbe2021-swiss-roll/table.md))" in SAID
    assert len(seeds) == 5
    ensemble, average, members = (
        [100.0 * float(seed[name]) for seed in seeds]
        for name in ("ensemble-accuracy", "accuracy", "ensemble-member-accuracy")
    )
    together, mean, alone = (fmean(found) for found in (ensemble, average, members))
    assert (
        f"together classify {together:.1f} % of the test points, their average {mean:.1f} % and "
        f"each by itself {alone:.1f} %"
    ) in SAID
    assert all(one > other for one, other in zip(ensemble, members, strict=True))
    better = [one > other for one, other in zip(ensemble, average, strict=True)]
    assert (better.count(True), better.count(False)) == (3, 2)
    assert "it is in three of the five, and worse in two" in SAID
    assert f"with a mean difference of {together - mean:.1f} points" in SAID


def test_each_model_is_better_than_the_ensemble_of_one_round_in_each_seed() -> None:
    page = " ".join((DOCS / "results" / "fedbe-digits.md").read_text("utf-8").split())
    assert (
        "than the ensemble of 1-Ensemble in each of the six seeds, as does that of FedAvg" in page
    )
    text = (DOCS / "results" / "fedbe-digits" / "seeds.csv").read_text("utf-8")
    rows = list(csv.DictReader(text.splitlines()))

    def numbers(method: str, metric: str) -> list[float]:
        return [float(row[metric]) for row in rows if row["method"] == method]

    ensembles = numbers("1-Ensemble", "ensemble-accuracy")
    assert len(ensembles) == 6
    for method in ("FedBE", "FedAvg"):
        models = numbers(method, "accuracy")
        assert all(model > ensemble for model, ensemble in zip(models, ensembles, strict=True))


def test_the_line_of_other_commits_is_named() -> None:
    made: dict[str, set[tuple[str, str]]] = {}
    for path in (DOCS / "results" / "fedbe-digits" / "runs").glob("*.json"):
        run = json.loads(path.read_text("utf-8"))
        made_on = run["environment"]["git-commit"], run["environment"]["processor"]
        made.setdefault(run["name"].rsplit("_", 1)[0], set()).add(made_on)
    last = made.pop("gaussians-nwa-distilled-clients-draws")
    others = set.union(*made.values())
    assert not {commit for commit, _ in last} & {commit for commit, _ in others}
    assert len({processor for _, processor in last}) == 2
    assert len({processor for _, processor in others}) == 1
    said = " ".join((DOCS / "results" / "fedbe-digits.md").read_text("utf-8").split())
    assert "All runs of that last line are of other commits than those of all other" in said


def test_unlike_members_are_not_ranked() -> None:
    study = read_study(CONFIGS / "fedbe-digits.toml")
    assert "ensemble-member-accuracy" not in {column.metric for column in study.columns}


@pytest.mark.parametrize(
    "study", ["fedbe2021/combinations-cifar10", "fedbe2021/scaffold", "fedbe-digits"]
)
def test_methods_are_compared_whose_clients_have_the_same_optimizer(study: str) -> None:
    """In the lines of a group, and in the orders that are expected."""
    read = read_study(CONFIGS / f"{study}.toml")
    steps = {}
    for run in read.runs():
        if run.values["seed"] == 0:
            values = resolve(dict(run.values), check_data=False).values
            steps[run.cell.key] = [values.get(key) for key in STEPS]
    groups: dict[Any, list[Any]] = {}
    for cell in read.cells():
        shared = tuple(cell.labels[name] for name in cell.labels if name not in read.compared)
        groups.setdefault(shared, []).append(steps[cell.key])
    assert all(found == [found[0]] * len(found) for found in groups.values())
    assert sum(map(len, groups.values())) > len(groups)
    for order in read.orders:
        pairs = order.pairs(read.cells())
        assert pairs
        assert all(steps[better.key] == steps[worse.key] for better, worse in pairs)


def test_scaffold_is_compared_with_what_it_is_without_control_variates() -> None:
    read = read_study(CONFIGS / "fedbe2021/combinations-cifar10.toml")
    found = {
        run.labels["method"]: dict(resolve(dict(run.values), check_data=False).values)
        for run in read.runs()
        if run.labels["clients"] == "without momentum"
    }
    plain, scaffold = found["FedAvg"], found["SCAFFOLD"]
    differing = {key for key in plain.keys() & scaffold.keys() if plain[key] != scaffold[key]}
    assert differing == {"strategy", "correction"}


@pytest.mark.parametrize("folder", ["fedbe2021", "fedbe2021-as-coded"])
def test_a_proximal_mu_is_of_its_own_distance(folder: str) -> None:
    """0.001 is the code's, for norms that are not squared; the paper has none."""
    wanted = (0.01, "squared") if folder == "fedbe2021" else (0.001, "norms")
    found = {}
    files = [p for p in sorted((CONFIGS / folder).glob("*.toml")) if "title" in read_toml(p)]
    for path in files:
        for run in read_study(path).runs():
            label = (path.stem, run.labels.get("method", ""))
            if "FedProx" in label[1] and label not in found:
                values = resolve(dict(run.values), check_data=False).values
                found[label] = (values["proximal-mu"], values["proximal-distance"])
    assert {(path, "FedBE + FedProx") for path, _ in found} <= found.keys()
    assert set(found.values()) == {wanted}


def test_under_systems_heterogeneity_epochs_are_drawn_in_each_round() -> None:
    """As FedProx, whom the paper follows, has it; the default draws them once."""
    for run in read_study(CONFIGS / "fedbe2021" / "table6.toml").runs():
        values = resolve(dict(run.values), check_data=False).values
        assert (values["workload"], values["epochs-drawn"]) == ("uniform", "each-round")


def test_table_1_has_each_published_line_in_one_of_two_studies() -> None:
    """The row of 1-Ensemble is that of its ensemble, the others are those of their model."""
    model, ensemble = (
        read_study(CONFIGS / "fedbe2021" / f"{name}.toml")
        for name in ("table1", "table1-one-ensemble")
    )
    text = (CONFIGS / "fedbe2021" / "published" / "table1.csv").read_text("utf-8")
    published = [
        (row["partition"], row["method"], row["network"])
        for row in csv.DictReader(text.splitlines())
    ]
    lines = [
        (cell.labels["partition"], cell.labels["method"], cell.labels["network"])
        for study in (model, ensemble)
        for cell in study.cells()
    ]
    assert sorted(lines) == sorted(published)
    for study, metric in ((model, "accuracy"), (ensemble, "ensemble-accuracy")):
        assert [c.metric for c in study.columns if c.published] == [metric]
    for run in ensemble.runs():
        values = resolve(dict(run.values), check_data=False).values
        assert (values["rounds"], values["local-epochs"]) == (1, 200)


@pytest.mark.parametrize("strategy", ["fedbe", "v-distillation", "one-ensemble"])
def test_a_strategy_of_the_server_says_nothing_of_the_clients_networks(strategy: str) -> None:
    values = resolve({"strategy": strategy}).values
    assert (values["inference"], values["optimizer"]) == ("flipout", "adam")
    assert "alone they are Flipout networks, trained by Adam" in SAID


@pytest.mark.parametrize(
    ("study", "partition"), [("step-cifar10", "step"), ("dirichlet-cifar10", "dirichlet-0.1")]
)
def test_the_orders_expected_of_the_reduced_studies_are_those_of_table_1(
    study: str, partition: str
) -> None:
    """All that are published and further apart than both spreads: none is left out, none is new."""
    read = read_study(CONFIGS / "fedbe2021" / f"{study}.toml")
    with (CONFIGS / "fedbe2021" / "published" / "table1.csv").open(encoding="utf-8") as stream:
        lines = [line for line in csv.DictReader(stream) if line["network"] == "ConvNet"]
    published = {
        line["method"]: (float(line["accuracy_pct"]), float(line["accuracy_spread"]))
        for line in lines
        if line["partition"] == partition
    }
    methods = {cell.labels["method"] for cell in read.cells()}
    assert methods < published.keys()
    clear = {
        (one, other)
        for one in methods
        for other in methods
        if published[one][0] - published[other][0] > published[one][1] + published[other][1]
    }
    expected = {
        (better.labels["method"], worse.labels["method"])
        for order in read.orders
        if order.metric == "accuracy"
        for better, worse in order.pairs(read.cells())
    }
    assert expected == clear


def test_the_published_code_differs_in_the_rows_of_the_table_that_concern_the_study() -> None:
    """What the page names: the other rows are of what the study does not have."""
    found = []
    for folder in ("fedbe2021", "fedbe2021-as-coded"):
        read = read_study(CONFIGS / folder / "step-cifar10.toml")
        (run,) = (
            run
            for run in read.runs()
            if run.labels["method"] == "FedBE" and run.values["seed"] == 0
        )
        found.append(dict(resolve(dict(run.values), check_data=False).values))
    written, coded = found
    keys = {key for key in written.keys() | coded.keys() if written.get(key) != coded.get(key)}
    named = (
        {"sampler", "sample-weights", "sample-scale", "sample-variance-floor"},
        {"swa-lowest-rate", "swa-start"},
        {"distillation-loss"},
        {"distillation-weight-decay", "student-augmentation", "student-crop-padding"},
        {"lr-milestones", "lr-factors"},
        {"crop-padding", "crop-padding-with"},
        {"input-range", "channel-means", "channel-deviations"},
        {"weight-decay-of"},
        {"initial-means"},
        {"partition"},
    )
    assert keys - {"name"} <= set().union(*named)
    assert all(keys & group for group in named)
