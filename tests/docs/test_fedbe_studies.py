"""FedBE's studies have the settings and the claims of the paper and of its code."""

import csv
from pathlib import Path

import pytest

from bfl.configuration import resolve
from bfl.configuration.sources import read_toml
from bfl.experiments.studies import read_study

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
STEPS = ("optimizer", "momentum", "learning-rate", "weight-decay", "batch-size")


@pytest.mark.parametrize(
    "study", ["fedbe2021/combinations-cifar10", "fedbe2021/scaffold", "fedbe-digits"]
)
def test_methods_are_compared_whose_clients_have_the_same_optimizer(study: str) -> None:
    read = read_study(CONFIGS / f"{study}.toml")
    steps = {}
    for run in read.runs:
        if run.values["seed"] == 0:
            values = run.configuration.values
            steps[run.cell.key] = [values.get(key) for key in STEPS]
    for order in read.claims:
        pairs = order.pairs(read.cells())
        assert pairs
        assert all(steps[better.key] == steps[worse.key] for better, worse in pairs)


def test_scaffold_is_compared_with_what_it_is_without_control_variates() -> None:
    read = read_study(CONFIGS / "fedbe2021/combinations-cifar10.toml")
    found = {
        run.labels["method"]: run.configuration.values
        for run in read.runs
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
        for run in read_study(path).runs:
            label = (path.stem, run.labels.get("method", ""))
            if "FedProx" in label[1] and label not in found:
                values = run.configuration.values
                found[label] = (values["proximal-mu"], values["proximal-distance"])
    assert {(path, "FedBE + FedProx") for path, _ in found} <= found.keys()
    assert set(found.values()) == {wanted}


def test_under_systems_heterogeneity_epochs_are_drawn_in_each_round() -> None:
    """As FedProx, whom the paper follows, has it; the default draws them once."""
    for run in read_study(CONFIGS / "fedbe2021" / "table6.toml").runs:
        values = run.configuration.values
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
    for run in ensemble.runs:
        values = run.configuration.values
        assert (values["rounds"], values["local-epochs"]) == (1, 200)


@pytest.mark.parametrize("strategy", ["fedbe", "v-distillation", "one-ensemble"])
def test_a_strategy_of_the_server_says_nothing_of_the_clients_networks(strategy: str) -> None:
    values = resolve({"strategy": strategy}).values
    assert (values["inference"], values["optimizer"]) == ("flipout", "adam")


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
        for order in read.claims
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
            run for run in read.runs if run.labels["method"] == "FedBE" and run.values["seed"] == 0
        )
        found.append(run.configuration.values)
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
