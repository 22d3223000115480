"""The command as a user runs it: real images, Ray, everything in the run's folder."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from bfl.configuration import resolve
from bfl.experiments.results.figures import FIGURES
from bfl.experiments.results.run_folder import RunFolder

ROOT = Path(__file__).resolve().parent.parent.parent

pytestmark = pytest.mark.slow


def command(name: str) -> list[str]:
    """Return how to call one of the project's console scripts, installed or not."""
    script = Path(sysconfig.get_path("scripts")) / name
    if script.exists():
        return [str(script)]
    module = {"bfl": "main", "flower-simulation": "flower_simulation"}[name]
    call = f"import sys; from bfl.commands.{module} import main; sys.exit(main())"
    return [sys.executable, "-c", call]


def simulate(
    output: Path, name: str, *arguments: str, config: str = "", figures: str = "none"
) -> RunFolder:
    """Run ``flower-simulation`` in a process of its own and return the run's folder."""
    environment = {k: v for k, v in os.environ.items() if k not in ("BFL_CPUS", "RAY_ADDRESS")}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        [
            *command("flower-simulation"),
            "--app",
            str(ROOT),
            *arguments,
            "--run-config",
            f'figures="{figures}" {config} output-dir="{output}" name="{name}"',
        ],
        cwd=output,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"results are in {name}\n" in done.stdout
    return RunFolder(output / name)


@pytest.fixture(scope="module")
def default_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """What ``scripts/simulate.sh`` runs, with a smaller network and fewer rounds."""
    config = 'model="mlp" strategy="ws" rounds=3 local-epochs=3'
    five = ("--num-supernodes", "5")
    return simulate(tmp_path_factory.mktemp("default"), "run", *five, config=config, figures="png")


def test_a_federation_learns_to_read_digits(default_run: RunFolder) -> None:
    metrics = default_run.metrics()
    assert metrics["accuracy"] > 0.9  # chance is 0.1
    assert metrics["negative-log-likelihood"] < 0.5  # log 10 = 2.3 for knowing nothing
    # Uncertainty that can be trusted: the certain half is nearly always right.
    for uncertainty in ("predictive-entropy", "aleatoric", "epistemic"):
        assert metrics[f"retention-area-accuracy-{uncertainty}"] > metrics["accuracy"]


def test_the_run_folder_is_complete(default_run: RunFolder) -> None:
    configuration = resolve(default_run.config())
    assert configuration.keys.clients == 5
    assert configuration.inference.name == "flipout"
    assert default_run.read_json("run.json:environment")["flwr"]
    rounds = default_run.rounds()
    assert [r["round"] for r in rounds] == [1, 2, 3]
    assert all(r["clients"] == 5 and r["failures"] == 0 for r in rounds)
    assert rounds[-1]["accuracy"] > rounds[0]["accuracy"] + 0.05
    posterior, manifest = default_run.posterior()
    assert posterior.digest() == rounds[-1]["posterior-sha256"]
    assert manifest.gaussian_size == posterior.size
    partition = default_run.read_json("run.json:partition")
    assert sum(partition["num_examples"]) == 1437
    drawn = {path.stem for path in (default_run.path / "figures").iterdir()}
    assert drawn == set(FIGURES) - {"foreign-images", "member-confidences", "predicted-numbers"}
