"""What a message advises works: the command that it names is taken from it, and run."""

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

import bfl
from bfl.commands.main import main
from bfl.errors import RunError
from bfl.experiments.results.run_folder import DATA, RunFolder

KEYS: dict[str, Any] = {
    "backend": "serial",
    "model": "mlp",
    "inference": "flipout",
    "clients": 2,
    "local_epochs": 1,
    "train_examples": 200,
    "test_examples": 50,
    "mc_samples": 2,
    "evaluate_mc_samples": 1,
    "figures": "none",
    "closing": "none",
}
STUDY = 'title = "T"\n[base]\nrounds = 1\nclients = 2\nmodel = "mlp"\n[axes]\nseed = [0]\n'
RULE = """from bfl.aggregation.pooling.base import pooling_rules
from bfl.aggregation.pooling.linear_pool import LinearPoolRule

@pooling_rules.register("mine")
class Mine(LinearPoolRule):
    "A rule."
"""

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("undrawn_figures")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run that is over, and one that was interrupted after a round."""
    folder = tmp_path_factory.mktemp("runs")
    bfl.run(**KEYS, rounds=1, output_dir=str(folder), name="over")

    def stop(*_: Any) -> None:
        raise RuntimeError("as if interrupted")

    with pytest.raises(RunError):
        bfl.run(**KEYS, rounds=2, output_dir=str(folder), name="interrupted", on_round=stop)
    return folder


@pytest.fixture(autouse=True)
def place(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(runs, tmp_path / "runs")
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    RunFolder.create(tmp_path / "runs", "own", {"plugins": "own.py"}, {}, {"plugins": "own.py"})
    (tmp_path / "dirichlet.toml").write_text('partition = "dirichlet"\nalpha = 0.5\n')
    (tmp_path / "own.py").write_text(RULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(command: str) -> int:
    """Run a command in this process, by the serial backend where it makes a run."""
    _, *words = shlex.split(command)
    if words[0] in ("run", "study", "close"):
        words += ["--backend", "serial"]
    return main(words)


IID = "bfl show --run-config dirichlet.toml --run-config 'partition=\"iid\"'"


@pytest.mark.parametrize(
    ("refused", "remedy", "whole"),
    [
        ("bfl report runs/interrupted", r"bfl run --resume \S+?(?=,)", "{}"),
        (
            "bfl show runs/interrupted",
            r"--run-config rounds=\d",
            "bfl run --resume runs/interrupted {}",
        ),
        (
            "bfl close runs/interrupted --closing feature-density",
            r"bfl run --resume \S+ --run-config '[^']*'",
            "{}",
        ),
        ("bfl run --run-config study.toml", r"bfl study \S+", "{} --dry-run"),
        ("bfl show runs/over --run-config rounds=2", r"--run-config \S+", "bfl show {}"),
        ("bfl run --resume runs/over --name b", r"--run-config \S+ --name NAME", "bfl run {}"),
        (
            "bfl show --run-config runs/own/config.toml",
            r"--plugins \S+\.py'",
            "bfl show --run-config runs/own/config.toml {}",
        ),
        (IID, r'alpha=""', IID + " --run-config '{}'"),
        ("bfl show --run-config sede=1", r"`(bfl keys)`|did you mean '(seed)'", "bfl keys seed"),
        ("bfl show --run-config 'strategy=\"fedavgg\"'", r"bfl list strategy", "{}"),
    ],
)
def test_a_named_command_works(
    refused: str, remedy: str, whole: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(refused) == 2
    found = re.search(remedy, " ".join(capsys.readouterr().err.split()))
    assert found
    assert call(whole.format(found[0])) == 0


def test_a_federation_is_not_closed_by_a_simulation(place: Path) -> None:
    shutil.copytree(place / "runs" / "over", place / "federated")
    RunFolder(place / "federated").write_json(DATA, {"test": "digest"})
    assert call("bfl close federated --closing feature-density") == 2
