"""The digests of before whole methods were made of parts: of the runs that are compared."""

import json
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_recorded_digests_are_of_the_runs_that_are_compared() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "bits.py"))
    recorded = json.loads((ROOT / "docs" / "results" / "bits.json").read_text(encoding="utf-8"))
    assert list(recorded["digests"]) == list(script["RUNS"])
    assert all(len(digest) == 64 for digest in recorded["digests"].values())
    # Each run computes something else than all others.
    assert len(set(recorded["digests"].values())) == len(script["RUNS"]) == 13
    assert recorded["git-commit"].startswith("47e44b6")
    # Bits that are promised since: what the server's network learns.
    assert recorded["later"].keys() == {"distilled-ensemble"}
    assert set(script["MACHINE"]) == set(recorded["machine"])
