"""One small run by the API, for all tests of this folder."""

import os
from pathlib import Path
from typing import Any

import pytest

import bfl

SMALL: dict[str, Any] = {
    "backend": "serial",
    "model": "mlp",
    "rounds": 2,
    "closing": "none",
    "local_epochs": 1,
    "clients": 3,
    "train_examples": 200,
    "test_examples": 150,  # more than one batch, and not a whole number of them
    "mc_samples": 3,
    "evaluate_mc_samples": 1,
    "seed": 5,
}


@pytest.fixture(scope="session")
def small() -> dict[str, Any]:
    return dict(SMALL)


@pytest.fixture(scope="session")
def result(tmp_path_factory: pytest.TempPathFactory) -> bfl.Result:
    """Return a finished run of three clients on digits, made within a relative folder."""
    parent = tmp_path_factory.mktemp("api")
    before = Path.cwd()
    os.chdir(parent)
    try:
        return bfl.run(**SMALL, strategy="conflation", inference="flipout", output_dir="runs")
    finally:
        os.chdir(before)
