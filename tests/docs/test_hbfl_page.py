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
    for section in ("table", "verdicts"):
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


def orders_of_speed(study: str) -> list[str]:
    """Return what the page says of each order in the rounds that a study's methods take."""
    page = (ROOT / "docs/results/hbfl2023.md").read_text("utf-8")
    section = page.split(f"<!-- verdicts hbfl2023-{study} -->")[1]
    columns = section.split("<!-- end of verdicts -->")[0].split("- Expected of rounds to")[1:]
    return [line for text in columns for line in text.splitlines() if " better than " in line]


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
