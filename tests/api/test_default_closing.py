"""A run for which nobody names a closing is closed, and knows nonsense when it sees it."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import bfl
from bfl.closing.closed import UNLIKE
from bfl.configuration import resolve
from bfl.configuration.sources import read_run_config
from bfl.engine.flower.app import FlowerApp
from bfl.experiments.results.report import run_report
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.run.simulation import DEFAULT_CLOSING, DEFAULT_CLOSING_OF_NUMBERS, with_closing

PLUGIN = """
from bfl.learning.models import architectures
from bfl.learning.models.plain import MultilayerPerceptron

@architectures.register("mine")
class Mine(MultilayerPerceptron):
    "A network."
"""


def table(folder: Path) -> dict[str, Any]:
    """Write a table of two classes; return the keys of a run on it."""
    draw = np.random.default_rng(0)
    with (folder / "rows.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["age", "dose", "outcome"])
        for ill in draw.integers(2, size=200):
            age, dose = draw.normal([60 + 8 * ill, 3 + 2 * ill], [9, 1])
            rows.writerow([f"{age:.1f}", f"{dose:.2f}", ["well", "ill"][ill]])
    return {"dataset": f"table:{folder / 'rows.csv'}", "target": "outcome"}


def images(folder: Path) -> dict[str, Any]:
    """Write images of two classes in a folder each; return the keys of a run on them."""
    draw = np.random.default_rng(0)
    for label, name in enumerate(("dark", "light")):
        (folder / "images" / name).mkdir(parents=True)
        for number in range(100):
            pixels = draw.normal(90 + 70 * label, 20, (8, 8)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "images" / name / f"{number}.png")
    return {"dataset": f"folder:{folder / 'images'}", "image_size": 8}


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn_figures")
@pytest.mark.parametrize("data", [table, images])
def test_nonsense_is_flagged_and_known_to_be_unknown(data: Any, tmp_path: Path) -> None:
    short = {"model": "mlp", "inference": "deterministic", "strategy": "fedavg", "clients": 2}
    short |= {"rounds": 2, "local_epochs": 8, "figures": "none", "backend": "serial"}
    run = bfl.run(**short, **data(tmp_path), output_dir=str(tmp_path / "runs"))
    assert run.configuration["closing"] == DEFAULT_CLOSING
    assert run.metrics["accuracy"] > 0.7
    assert run.metrics["held-back-nll"] <= run.metrics["held-back-nll-before"]
    if data is table:
        import pandas as pd

        given: Any = pd.DataFrame({"age": [64, 500], "dose": [4.0, -3e4]})
    else:
        chessboard = np.indices((8, 8)).sum(axis=0) % 2 * 255
        given = np.stack([np.full((8, 8), 125), chessboard])[..., None].astype(np.uint8)
    found = run.predict(given)
    assert UNLIKE in found.warnings[1]
    np.testing.assert_allclose(found.mean_probability[1], 0.5, atol=0.1)
    assert "held-back-nll" in run_report(RunFolder(run.folder))
    # What is repeated from its file is closed likewise, and so is what is begun without one.
    assert read_run_config([str(run.folder / "config.toml")])["closing"] == DEFAULT_CLOSING


@pytest.mark.parametrize(
    ("keys", "expected", "said"),
    [
        ({}, DEFAULT_CLOSING, ""),
        ({"strategy": "pvi"}, DEFAULT_CLOSING, ""),
        ({"exchange": "masked"}, DEFAULT_CLOSING, ""),
        ({"closing": "none"}, "none", ""),
        ({"task": "regression"}, DEFAULT_CLOSING_OF_NUMBERS, ""),
        ({"strategy": "dp-fedavg"}, "none", "outgoing"),
        (
            {"example-privacy": "dp-sgd", "round-retries": 0, "model": "mlp"},
            "none",
            "example-privacy",
        ),
        ({"pretrain-examples": 0.1}, "none", "pretrain-examples"),
        ({"plugins": "mine.py", "model": "mine"}, "none", "mine"),
    ],
)
def test_where_no_closing_can_be_there_is_none_and_a_line_says_why(
    keys: dict[str, Any], expected: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(PLUGIN, encoding="utf-8")
    lines: list[str] = []
    found = with_closing(FlowerApp.own(), keys, lines.append)
    assert resolve(found, check_data=False).values["closing"] == expected
    assert len(lines) == bool(said)
    assert said in "".join(lines)


def test_a_run_that_is_resumed_keeps_its_closing(tmp_path: Path) -> None:
    RunFolder.create(tmp_path, "run", resolve({}).values, {})
    keys = {"output-dir": str(tmp_path), "name": "run", "resume": True}
    assert with_closing(FlowerApp.own(), keys)["closing"] == "none"
    assert with_closing(FlowerApp.own(), {**keys, "name": "new"})["closing"] == DEFAULT_CLOSING
