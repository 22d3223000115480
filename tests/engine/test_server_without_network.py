"""A server that judges nothing: without TensorFlow, and with the posterior of one that judges."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from clients_in_numpy import numpy_app

from bfl.configuration import resolve
from bfl.data.datasets import load_dataset
from bfl.engine.flower import FlowerApp, new_run, run_serially
from bfl.engine.serial import SerialGrid
from bfl.errors import ConfigurationError, RunError
from bfl.experiments.results.run_folder import RunFolder
from bfl.posteriors import Manifest
from bfl.posteriors.manifest import Parameter
from strategies.application.evaluation import manifest_of_clients
from strategies.application.run import run_federation
from strategies.federation import discover

ROOT = Path(__file__).resolve().parent.parent.parent
BASE = {"dataset": "digits", "model": "resnet8", "clients": 2, "name": "run"}


def own_parameters(trainable: int = 10) -> Manifest:
    """Return the parameters of a network of NumPy clients."""
    return Manifest((Parameter("a/kernel", (8, trainable), True, "he-normal"),))


def grid_of(*manifests: Manifest | str) -> SerialGrid:
    return SerialGrid(numpy_app(manifests, keeps_state=True), len(manifests), new_run({}), {})


def main(folder: str) -> None:
    """Make a short run with NumPy clients, and tell whether this process has TensorFlow."""
    values = {**BASE, "output-dir": folder, "rounds": 2, "server-evaluates": False}
    run = run_federation(grid_of(own_parameters(), own_parameters()), resolve(values))
    print(json.dumps([len(run.rounds()), run.metrics(), *map(sys.modules.__contains__, HEAVY)]))


HEAVY = ("tensorflow", "tf_keras", "tensorflow_probability", "keras")


@pytest.mark.slow
def test_its_process_does_without_tensorflow(tmp_path: Path) -> None:
    """From the configuration to the run's folder, in a process of its own."""
    paths = [str(Path(__file__).parent), str(ROOT)]
    call = f"import sys; sys.path[:0] = {paths}; import {Path(__file__).stem} as t; "
    done = subprocess.run(
        [sys.executable, "-c", f"{call}t.main(sys.argv[1])", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [2, {}, *([False] * len(HEAVY))]
    assert (tmp_path / "run" / "posterior.npz").is_file()


@pytest.mark.slow
def test_the_posterior_is_that_of_a_server_that_judges(tmp_path: Path) -> None:
    digests = []
    for evaluates in (True, False):
        values = {
            **BASE,
            "name": f"judged-{evaluates}",
            "output-dir": str(tmp_path),
            "rounds": 1,
            "local-epochs": 1,
            "inference": "deterministic",
            "strategy": "nwa",
            "train-examples": 100,
            "test-examples": 20,
            "evaluate-every": 0,
            "mc-samples": 1,
            "server-evaluates": evaluates,
        }
        run_serially(FlowerApp.read(ROOT), values, 2, {})
        folder = RunFolder(tmp_path / f"judged-{evaluates}")
        digests.append(folder.rounds()[-1]["posterior-sha256"])
        assert bool(folder.metrics()) == evaluates
        assert not (tmp_path / f"judged-{evaluates}" / "predictions.npz").exists() or evaluates
    assert digests[0] == digests[1]


def asked(*manifests: Manifest | str, told: list[str] | None = None) -> Manifest:
    grid = grid_of(*manifests)
    federation = discover(grid, len(manifests), 5.0)
    configuration = resolve({**BASE, "server-evaluates": False})
    say = (told if told is not None else []).append
    return manifest_of_clients(configuration, load_dataset("digits"), grid, federation, say)


def test_clients_have_to_agree_on_the_parameters() -> None:
    own, other = own_parameters(), own_parameters(11)
    assert asked(own, own) == own
    with pytest.raises(ConfigurationError, match=r"not the same for clients \[0, 2\] and .*\[1\]"):
        asked(own, other, own)


def test_as_many_have_to_answer_as_a_round_needs() -> None:
    """One of four would decide the network of all."""
    own = own_parameters()
    told: list[str] = []
    assert asked("out of memory", own, told=told) == own
    [line] = told
    assert "client 0: " in line
    assert "out of memory" in line
    with pytest.raises(RunError, match=r"1 of 4 clients .* asks for 2\nclient 1: no\nclient 2: no"):
        asked(own, "no", "no", "no")
    with pytest.raises(RunError, match="client 0: no\nclient 1: nor here"):
        asked("no", "nor here")


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"pretrain-examples": 10}, "pretrain-examples"),
        ({"server-data": "digits"}, "server-data"),
        ({"predictive": "ensemble"}, "predictive"),
        ({"strategy": "fedper"}, "shared"),
        ({"strategy": "fedbe"}, "refinement"),
        ({"weighting": "accuracy", "server-data": "held-back"}, "weighting"),
    ],
)
def test_what_needs_a_network_is_refused(values: dict[str, Any], key: str) -> None:
    """A part that asks the server is named first, before its images."""
    with pytest.raises(ConfigurationError) as caught:
        resolve({**BASE, **values, "server-evaluates": False}, check_data=False)
    text, *_ = str(caught.value).splitlines()
    assert "server-evaluates" in text
    assert f" {key} is " in text
