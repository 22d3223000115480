"""What the page on FedBE says in numbers is what was measured."""

from __future__ import annotations

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
