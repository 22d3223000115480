"""What the page of HBFL's results says beside its tables is what studies and papers have."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

import pytest

from bfl.configuration import Configuration, resolve
from bfl.configuration.sources import read_toml
from bfl.data.datasets.cache import cached_dataset
from bfl.experiments.studies import read_study
from bfl.experiments.studies.extending import read_extended

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs" / "hbfl2023"
SAID = " ".join((ROOT / "docs/results/hbfl2023.md").read_text("utf-8").split())
STUDIES = (
    "digits",
    "cifar10-1000-images",
    "mnist-1000-images",
    "cifar10-1000-images-mixed",
    "tasks-1000-images",
    "slow-clients-1000-images",
)


@cache
def configurations(study: str) -> tuple[Configuration, ...]:
    runs = read_study(CONFIGS / f"{study}.toml").runs()
    return tuple(resolve(dict(run.values), check_data=False) for run in runs)


@pytest.mark.parametrize("study", STUDIES)
def test_the_folder_of_results_is_that_of_the_study_as_it_stands(study: str) -> None:
    folder = ROOT / "docs" / "results" / f"hbfl2023-{study}"
    stands = read_extended(CONFIGS / f"{study}.toml").tables
    assert read_toml(folder / "study.toml") == stands
    for section in ("table", "verdicts", "difference"):
        assert f"<!-- {section} {folder.name}" in SAID


@pytest.mark.parametrize("study", STUDIES)
def test_what_all_runs_have_in_common(study: str) -> None:
    for configuration in configurations(study):
        keys = configuration.keys
        assert keys.local_epochs == 5
        assert keys.clients == 10
        assert configuration.values["fraction-train"] == 1.0
        assert (configuration.workload.name == "slow-share") == (
            study == "slow-clients-1000-images"
        )
    seeds = {configuration.keys.seed for configuration in configurations(study)}
    assert len(seeds) == 3
    said = "ten clients, five local epochs (slow clients fewer), all clients in every round, three"
    assert f"{said} seeds" in SAID


def test_the_images_and_steps_of_cifar10() -> None:
    for configuration in configurations("cifar10-1000-images"):
        keys = configuration.keys
        each = (keys.train_examples - keys.server_examples) / keys.clients
        assert each == 1000
        assert keys.local_epochs * -(-each // keys.batch_size) == 160
        assert (keys.rounds, keys.evaluate_every, keys.test_examples) == (20, 2, 0)
    steps = "160 steps a round where clients are of equal size"
    assert f"1,000 images a client on average, batches of 32 ({steps}), 20 rounds" in SAID


def test_the_images_and_rounds_of_the_others() -> None:
    for study in STUDIES[2:]:
        for configuration in configurations(study):
            keys = configuration.keys
            servers = keys.server_examples if keys.server_data else 0
            each = (keys.train_examples - servers) / keys.clients
            assert each == 1000
            assert keys.local_epochs * -(-each // keys.batch_size) == 160
            rounds = (10, 1) if study == "mnist-1000-images" else (20, 2)
            assert (keys.rounds, keys.evaluate_every) == rounds
    assert {c.values["slow-share"] for c in configurations("slow-clients-1000-images")} == {0.9}
    assert "nine of ten clients making 1 to 5 local epochs" in SAID


def differences(one: str, other: str, study: str = "digits") -> dict[str, str]:
    """Return what the page says of two lines of a study, by partition."""
    block = SAID.split(f"<!-- difference hbfl2023-{study}: {one} against {other} -->")[1]
    entries = block.split("<!-- end of difference -->")[0].split(f", {one} against {other}: ")
    names = [text.split("- ")[-1].strip() for text in entries[:-1]]
    return dict(zip(names, entries[1:], strict=True))


def test_what_is_said_of_other_variances_to_begin_with() -> None:
    control, first = "FedAvg with Adam", "dirichlet-100"
    lines = ("HBFL", "HBFL, σ 0.005", "HBFL, own variances")
    of_accuracy = {}
    for line in lines:
        said = differences(line, control)
        assert list(said) == [first, "dirichlet-0.05"]
        assert all(" better, by" not in text for text in said.values())
        for number, column in enumerate(("global accuracy", "best round's")):
            accuracy = {name: text.split("; ")[number] for name, text in said.items()}
            assert all(text.startswith(column) for text in accuracy.values())
            behind = [name for name, text in accuracy.items() if "worse, by" in text]
            of_accuracy[line, column] = behind
    last = {line: of_accuracy[line, "global accuracy"] for line in lines}
    best = {line: of_accuracy[line, "best round's"] for line in lines}
    assert last == dict(zip(lines, ([first], [], [first]), strict=True))
    assert best == dict(zip(lines, ([first], [], []), strict=True))
    assert (
        "in the last round's and the best round's accuracy under α = 100, HBFL with σ = 0.005 is "
        "in neither, and HBFL with variances of its own in the last round's accuracy alone"
    ) in SAID


def accuracies(one: str, other: str, study: str) -> dict[str, str]:
    """Return "better", "worse" or "no" by partition: the order of the last round's accuracy."""
    words = {", better, by the": "better", ", worse, by the": "worse", ", no significant": "no"}
    found = {}
    for partition, text in differences(one, other, study).items():
        accuracy = text.split("; ")[0]
        assert accuracy.startswith("global accuracy")
        (found[partition.removeprefix("dirichlet-")],) = (
            order for said, order in words.items() if said in accuracy
        )
    return found


def test_what_is_said_of_the_initial_deviation_on_cifar10() -> None:
    study, small = "cifar10-1000-images", "HBFL, σ 0.005"
    both = {"0.05": "worse", "100": "worse"}
    assert accuracies("HBFL", "FedAvg with Adam", study) == both
    assert accuracies(small, "FedAvg with Adam", study) == {"0.05": "no", "100": "no"}
    assert "with σ = 0.05 HBFL is worse than FedAvg with Adam by the interval under both α" in SAID
    assert accuracies("HBFL", "FML", study) == both
    assert accuracies(small, "FML", study) == {"0.05": "no", "100": "better"}
    assert "the reverse of its order is found under both α" in SAID
    assert "HBFL is better than FML under α = 100, by the interval, and no order" in SAID
    assert accuracies("HBFL", "FedProx", study)["0.05"] == "worse"
    assert accuracies(small, "FedProx", study)["0.05"] == "worse"
    assert "under 0.05, where FedProx stays better than either" in SAID


def orders_of_speed(study: str) -> list[str]:
    """Return what the page says of each order in the rounds that a study's methods take."""
    page = (ROOT / "docs/results/hbfl2023.md").read_text("utf-8")
    section = page.split(f"<!-- verdicts hbfl2023-{study} -->")[1]
    columns = section.split("<!-- end of verdicts -->")[0].split("- Expected of rounds to")[1:]
    return [line for text in columns for line in text.splitlines() if " better than " in line]


def test_that_no_speed_is_found_on_cifar10() -> None:
    orders = orders_of_speed("cifar10-1000-images")
    assert len(orders) == 2 * 2 * 2 * 4
    assert not any(": found" in line for line in orders)
    assert "That it is faster than the others, as the paper says of Fig. 3, is found with" in SAID


def test_what_is_said_of_mnist() -> None:
    study = "mnist-1000-images"
    for other in ("FML", "FedProx"):
        assert accuracies("HBFL", other, study) == {"0.05": "worse", "100": "no"}
    assert accuracies("HBFL", "FedAvg with Adam", study) == {"0.05": "no", "100": "no"}
    assert "Under α = 0.05 HBFL is worse than FML and FedProx by the interval, and against" in SAID
    assert "Under α = 100 none is found against any of the three" in SAID
    assert len(orders_of_speed(study)) == 2 * 4
    assert not any(": found" in line for line in orders_of_speed(study))
    assert {c.values.get("initial-scale", 0.05) for c in configurations(study)} == {0.05}


def test_what_is_said_of_slow_clients() -> None:
    study = "slow-clients-1000-images"
    for other in ("FML", "FedProx"):
        assert accuracies("HBFL", other, study) == {"0.05": "worse", "100": "worse"}
    assert "With σ = 0.05 HBFL is behind both under both α, by the interval, and nowhere" in SAID
    orders = [text for text in orders_of_speed(study) if "HBFL, σ 0.005" not in text]
    assert len(orders) == 2 * 2 * 4
    assert not any(": found" in line for line in orders)


def found_orders(study: str, heading: str) -> dict[str, str]:
    """Return "found", "reverse" or "no" for each order that the page expects of a column."""
    page = (ROOT / "docs/results/hbfl2023.md").read_text("utf-8")
    section = page.split(f"<!-- verdicts hbfl2023-{study} -->")[1]
    text = section.split("<!-- end of verdicts -->")[0].split(f"- Expected of {heading}:\n")[1]
    words = {"found, by": "found", "the reverse is found, by": "reverse", "no significant": "no"}
    orders = {}
    for line in text.split("\n- ")[0].splitlines():
        what, _, said = line.removeprefix("  - ").partition(": ")
        if said:
            [orders[what]] = (order for word, order in words.items() if said.startswith(word))
    return orders


def test_what_is_said_of_mixed_models() -> None:
    study = "cifar10-1000-images-mixed"
    near, far = (f"dirichlet-{alpha} HBFL better than FML" for alpha in ("0.05", "100"))
    assert found_orders(study, "best round's (%)") == {near: "reverse", far: "reverse"}
    assert found_orders(study, "better of both, best (%)") == {near: "no", far: "reverse"}
    assert "the reverse is found of the global model under both α, and of the better of" in SAID
    assert "both under α = 100; of the latter under α = 0.05" in SAID


def test_what_is_said_of_two_tasks() -> None:
    study = "tasks-1000-images"
    far, near = "cifar10 and tiny-imagenet HBFL", "fashion-mnist and mnist HBFL"
    best = found_orders(study, "better of both, best (%)")
    assert {line for line, order in best.items() if order == "found"} == {
        f"{near} better than {other}" for other in ("Independent", "FML")
    }
    assert {order for line, order in best.items() if line.startswith(far)} == {"no"}
    assert "its order is found with Fashion-MNIST and MNIST, by half a point against FML" in SAID
    last = found_orders(study, "personal model, last (%)")
    assert [line for line, order in last.items() if order != "no"] == [
        f"{far} better than Independent"
    ]
    assert last[f"{far} better than Independent"] == "found"
    assert "clients alone with CIFAR-10 and Tiny-ImageNet; no other order of it is found" in SAID


def test_the_images_of_the_digits() -> None:
    digits = cached_dataset("digits", "")
    for configuration in configurations("digits"):
        keys = configuration.keys
        each = (digits.train_labels.size - keys.server_examples) / keys.clients
        assert round(each) == 134
        assert (keys.batch_size, keys.rounds) == (16, 10)
    assert digits.test_labels.size == 360
    assert f"one image is {100 / 360:.2f} points" in SAID
    assert "about 134 images a client, batches of 16, 10 rounds, 360 test images" in SAID


def test_what_there_is_with_1000_images() -> None:
    found = {path.stem for path in CONFIGS.glob("*-1000-images*.toml")}
    assert found == set(STUDIES[1:])
    told = {c.keys.dataset for study in STUDIES[1:] for c in configurations(study)}
    assert not any("cifar100" in dataset for dataset in told)
    alphas = {
        c.values["alpha"]
        for study in STUDIES[1:]
        for c in configurations(study)
        if c.values["partition"] == "dirichlet"
    }
    assert alphas == {100.0, 0.05}


def test_the_published_accuracies() -> None:
    text = (CONFIGS / "published" / "tables1-3.csv").read_text("utf-8")
    rows = [row for row in csv.DictReader(text.splitlines()) if row["dataset"] == "cifar10"]
    accuracy = {(row["partition"], row["method"]): float(row["global_pct"]) for row in rows}
    first, second = ("dirichlet-0.05", "dirichlet-100")
    words = "α = 0.05: {:.2f} % (HBFL) against {:.2f} % (FML) in the best of 100 rounds"
    assert words.format(accuracy[first, "HBFL"], accuracy[first, "FML"]) in SAID
    words = "{:.2f} against {:.2f} % under α = 100"
    assert words.format(accuracy[second, "HBFL"], accuracy[second, "FML"]) in SAID


def test_the_published_accuracies_of_clients() -> None:
    text = (CONFIGS / "published" / "tables1-3.csv").read_text("utf-8")
    rows = [row for row in csv.DictReader(text.splitlines()) if row["dataset"] == "cifar10"]
    means = {
        (row["partition"], row["method"]): sum(float(row[f"client{k}_pct"]) for k in range(1, 11))
        / 10
        for row in rows
    }
    near, far = ("dirichlet-0.05", "dirichlet-100")
    words = "{:.2f} % (HBFL) against {:.2f} % (FML) under α = 0.05, {:.2f} against {:.2f} % under"
    numbers = [means[partition, method] for partition in (near, far) for method in ("HBFL", "FML")]
    assert words.format(*numbers) in SAID
    text = (CONFIGS / "published" / "table4.csv").read_text("utf-8")
    tasks = {row["method"]: row for row in csv.DictReader(text.splitlines())}
    for column, words in (
        ("cifar10_pct", "{}, {} and {} % of the former"),
        ("cifar100_pct", "{}, {} and {} % of the latter"),
    ):
        published = [
            f"{float(tasks[method][column]):.2f}" for method in ("Independent", "FML", "HBFL")
        ]
        assert words.format(*published) in SAID
