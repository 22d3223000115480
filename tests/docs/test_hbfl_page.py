"""What the page of HBFL's results says beside its tables is what studies and papers have."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

import pytest

from bfl.configuration import Configuration, resolve
from bfl.data.datasets.cache import cached_dataset
from bfl.experiments.studies import read_study

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs" / "hbfl2023"
SAID = " ".join((ROOT / "docs/results/hbfl2023.md").read_text("utf-8").split())
STUDIES = ("digits", "cifar10-1000-images")


@cache
def configurations(study: str) -> tuple[Configuration, ...]:
    runs = read_study(CONFIGS / f"{study}.toml").runs()
    return tuple(resolve(dict(run.values), check_data=False) for run in runs)


@pytest.mark.parametrize("study", STUDIES)
def test_the_folder_of_results_is_that_of_the_study_as_it_stands(study: str) -> None:
    folder = ROOT / "docs" / "results" / f"hbfl2023-{study}"
    assert (folder / "study.toml").read_bytes() == (CONFIGS / f"{study}.toml").read_bytes()
    for section in ("table", "verdicts", "difference"):
        assert f"<!-- {section} {folder.name}" in SAID


@pytest.mark.parametrize("study", STUDIES)
def test_what_all_runs_have_in_common(study: str) -> None:
    for configuration in configurations(study):
        keys = configuration.keys
        assert keys.local_epochs == 5
        assert keys.clients == 10
        assert configuration.values["fraction-train"] == 1.0
    seeds = {configuration.keys.seed for configuration in configurations(study)}
    assert len(seeds) == 3
    assert "ten clients, five local epochs, all clients in every round, three seeds" in SAID


def test_the_images_and_steps_of_cifar10() -> None:
    for configuration in configurations("cifar10-1000-images"):
        keys = configuration.keys
        each = (keys.train_examples - keys.server_examples) / keys.clients
        assert each == 1000
        assert keys.local_epochs * -(-each // keys.batch_size) == 160
        assert (keys.rounds, keys.evaluate_every, keys.test_examples) == (20, 2, 0)
    assert "1,000 images a client on average, batches of 32 (160 steps a round), 20 rounds" in SAID


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


def test_the_published_accuracies() -> None:
    text = (CONFIGS / "published" / "tables1-3.csv").read_text("utf-8")
    rows = [row for row in csv.DictReader(text.splitlines()) if row["dataset"] == "cifar10"]
    accuracy = {(row["partition"], row["method"]): float(row["global_pct"]) for row in rows}
    first, second = ("dirichlet-0.05", "dirichlet-100")
    words = "α = 0.05: {:.2f} % (HBFL) against {:.2f} % (FML) in the best of 100 rounds"
    assert words.format(accuracy[first, "HBFL"], accuracy[first, "FML"]) in SAID
    words = "{:.2f} against {:.2f} % under α = 100"
    assert words.format(accuracy[second, "HBFL"], accuracy[second, "FML"]) in SAID
