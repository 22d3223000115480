"""What the page on FedBE says in numbers is what was measured."""

from __future__ import annotations

import csv
import json
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
SAID = " ".join((DOCS / "fedbe.md").read_text("utf-8").split())


def test_the_servers_step_takes_what_the_benchmark_has_found() -> None:
    found = json.loads((DOCS / "results" / "benchmarks" / "server_step.json").read_text("utf-8"))
    rows = {row["what"]: row for row in found["rows"]}
    whole, memory = rows["ConvNet, the whole step"], rows["ResNet-56, memory, RSS"]
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
        "it takes {:.0f} s on two cores, where the authors' code took {:.0f} s: {:.0f} s for the"
    )
    assert words.format(*seconds) in SAID
    assert f"and {seconds[3]:.0f} s for 1,580 steps of the student" in SAID
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
