"""Ensembles and distillation in whole runs with a real network: a few rounds on a few digits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs_in_process import KilledError, digests, make_run

from bfl.configuration import resolve
from bfl.errors import ConfigurationError
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.run.resume import Checkpoints
from bfl.learning.distillation import Distiller
from strategies.application.preflight import check_before_start

CLIENTS, ROUNDS = 3, 2
VALUES: dict[str, Any] = {
    "model": "mlp",
    "inference": "deterministic",
    "train-examples": 200,
    "test-examples": 50,
    "rounds": ROUNDS,
    "local-epochs": 1,
    "mc-samples": 1,
    "evaluate-every": 0,
    "batch-size": 30,
    "partition": "dirichlet",
    "alpha": 1.0,
    "learning-rate": 0.01,
}
FEDBE: dict[str, Any] = {
    "strategy": "fedbe",
    "server-examples": 40,
    "ensemble-samples": 3,
    "distillation-epochs": 3,
    "distillation-batch-size": 20,
    "swa-cycle": 2,
    "student-augmentation": "none",
    "distillation-learning-rate": 0.05,
    "swa-lowest-rate": 0.02,
}

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("undrawn_figures")]


def run(folder: Path, **changes: Any) -> RunFolder:
    return make_run(VALUES, CLIENTS, folder, **changes)


def test_a_round_that_is_killed_while_distilling_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, distil = run(tmp_path / "whole", **FEDBE), Distiller.distil

    def killed(distiller: Distiller, images: Any, task: Any) -> Any:
        if task.labels[-1] == 2:
            raise KilledError
        return distil(distiller, images, task)

    with monkeypatch.context() as patch:
        patch.setattr(Distiller, "distil", killed)
        with pytest.raises(KilledError):
            run(tmp_path / "run", **FEDBE)
    resumed = run(tmp_path / "run", **FEDBE, resume=True)
    assert digests(resumed) == digests(whole)
    assert resumed.metrics() == whole.metrics()


def test_an_ensemble_is_judged_beside_the_posterior(tmp_path: Path) -> None:
    """And changes nothing of the run itself; the last round's numbers are the final ones."""
    watched = {"predictive": "ensemble", "ensemble_samples": 2, "evaluate_every": 1}
    folder = run(tmp_path / "watched", strategy="fedavg", **watched)
    assert digests(folder) == digests(run(tmp_path / "plain", strategy="fedavg"))
    final, last = folder.metrics(), folder.rounds()[-1]
    for name in ("accuracy", "negative-log-likelihood", "expected-calibration-error"):
        assert final[f"ensemble-{name}"] == last[f"ensemble-{name}"]
        assert f"ensemble-{name}" in folder.rounds()[0]
        assert final[name] == last[name]
    assert "ensemble-retention-area-accuracy-epistemic" in final
    found = folder.read_json("run.json:ensemble")
    accuracies = found["member-accuracy"]
    clients = [f"client-{k}" for k in range(CLIENTS)]
    assert list(accuracies) == ["sample-0", "sample-1", "average", *clients]
    assert accuracies["average"] == pytest.approx(final["accuracy"])
    assert final["ensemble-member-accuracy"] == pytest.approx(np.mean(list(accuracies.values())))
    assert found["retention"]["curves"]["accuracy"]["epistemic"]["area"] == pytest.approx(
        final["ensemble-retention-area-accuracy-epistemic"]
    )
    # Judged again from its checkpoint, as after a kill in the final evaluation.
    kept = {**watched, "strategy": "fedavg"}
    (folder.path / "metrics.json").unlink()
    again = run(tmp_path / "watched", **kept, resume=True)
    assert again.metrics() == final
    assert Checkpoints(again).latest() is not None


def test_variational_clients_have_ensembles_of_their_own(tmp_path: Path) -> None:
    """Samples from the pool, and draws of each client's own posterior."""
    values = {**FEDBE, "inference": "flipout", "sampler": "pooled-posterior", "client-draws": 2}
    folder = run(tmp_path / "run", **{**values, "predictive": "ensemble"}, rounds=1)
    names = list(folder.read_json("run.json:ensemble")["member-accuracy"])
    assert names[:4] == ["sample-0", "sample-1", "sample-2", "average"]
    assert names[4:6] == ["client-0-draw-0", "client-0-draw-1"]
    [entry] = folder.rounds()
    assert entry["distillation-after"] < entry["distillation-before"]
    assert entry["degree-of-spread"] > 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"distillation-optimizer": "swa", "swa-cycle": 50}, "no model would be collected"),
        ({"server-data": "npz:copy.npz"}, "of its 20 images are among those that the clients"),
        ({"server-data": "npz:two.npz"}, "images of 2 channels"),
    ],
)
def test_server_data_that_do_not_serve_are_refused_before_the_first_round(
    changes: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bfl.data.datasets import load_dataset

    monkeypatch.chdir(tmp_path)
    digits = load_dataset("digits")
    some = np.argsort(digits.train_labels, kind="stable")[::72]
    labels = digits.train_labels[some]
    for name, channels in (("copy", 1), ("two", 2)):
        images = np.repeat(digits.train_images[some], channels, axis=-1)
        np.savez(f"{name}.npz", x_train=images, x_test=images, y_train=labels, y_test=labels)
    values = {**VALUES, **FEDBE, "train-examples": 0.0, "server-examples": 20}
    with pytest.raises(ConfigurationError, match=said):
        check_before_start(resolve({**values, **changes}), CLIENTS)
