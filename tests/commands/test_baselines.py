"""What each client, and all data in one place, give beside a federation."""

from __future__ import annotations

from pathlib import Path

import pytest

import bfl
from bfl.commands.main import main
from bfl.errors import ConfigurationError
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.run.baselines import baselines_of

SMALL = {
    "model": "mlp",
    "clients": 2,
    "rounds": 2,
    "local_epochs": 1,
    "train_examples": 200,
    "test_examples": 60,
    "mc_samples": 2,
    "partition": "dirichlet",
    "alpha": 0.1,
}


def test_baselines_stand_beside_the_federation(tmp_path: Path) -> None:
    result = bfl.run(
        SMALL, baselines="local+central", output_dir=tmp_path, name="run", verbose=False
    )
    found = result.baselines
    assert found.keys() == {"federation", "central", "local"}
    assert found["local"].keys() == {"client 0", "client 1"}
    before = result.metrics.get("before-closing-accuracy", result.metrics["accuracy"])
    assert found["federation"]["accuracy"] == before
    for name, own in {"central": found["central"], **found["local"]}.items():
        folder = RunFolder(tmp_path / f"run-{name.replace('client ', 'local-')}")
        assert own["accuracy"] == folder.metrics()["accuracy"]
    # One client has trained alone in each round, on its own part of the same division.
    for client in (0, 1):
        alone = RunFolder(tmp_path / f"run-local-{client}")
        trained = [[each["client"] for each in entry["per-client"]] for entry in alone.rounds()]
        assert trained == [[client], [client]]
        assert alone.read_json("run.json:partition") == RunFolder(result.folder).read_json(
            "run.json:partition"
        )
    assert found["local"]["client 0"] != found["local"]["client 1"]
    assert main(["report", str(result.folder)]) == 0
    page = (result.folder / "report.html").read_text(encoding="utf-8")
    for model in ("all data in one place", "client 0 alone", "Is federating worth it?"):
        assert model in page


def test_unknown_baselines_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="central"):
        baselines_of("local+centrale")
    assert main(["run", "--baselines", "local"]) == 2
