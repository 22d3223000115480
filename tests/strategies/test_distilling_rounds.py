"""Rounds of FedBE and V-Distillation: killed while distilling, and what is distilled from what."""

from pathlib import Path

import numpy as np
import pytest
from numpy_clients import KilledError
from numpy_server import NumpyServer
from test_parts_contract import CASES, ROUNDS, D, P, bits, federation

from bfl.aggregation.server import DistillationTask, Distilled


class Killed(NumpyServer):
    """Ends while it distils, the first time in a round."""

    def distil(self, task: DistillationTask) -> Distilled:
        if task.labels not in [before.labels for before in self.tasks]:
            self.tasks.append(task)
            raise KilledError
        return super().distil(task)


def test_a_round_that_is_killed_while_distilling_is_made_again(tmp_path: Path) -> None:
    values = {**CASES["fedbe"], "fraction-train": 0.75}
    whole = federation(tmp_path / "whole", values).run(ROUNDS)
    killed = federation(tmp_path / "killed", values, server=Killed(D + P))
    for _ in range(ROUNDS):
        with pytest.raises(KilledError):
            killed.run(ROUNDS)
    assert bits(killed.run(ROUNDS)) == bits(whole)


def test_the_student_begins_at_the_moved_average(tmp_path: Path) -> None:
    """With momentum as well: the paper initialises distillation with FedAvgM's model."""
    server = NumpyServer(D + P)
    values = {**CASES["fedbe + fedavgm, watched"], "distillation-learning-rate": 1e-30}
    values["swa-lowest-rate"] = 1e-30
    done = federation(tmp_path / "fedbe", values, server=server).run(2)
    plain = federation(tmp_path / "fedavgm", {"strategy": "fedavgm"}).run(2)
    for task, after, expected in zip(server.tasks, done, plain, strict=True):
        assert task.start.digest() == after.posterior.digest() == expected.posterior.digest()
        assert after.state.predictive["average.mean"].tobytes() == task.start.mean.tobytes()


@pytest.mark.parametrize("clamp", [0.0, 0.01])
def test_models_have_the_variances_that_the_clients_networks_compute_with(
    clamp: float, tmp_path: Path
) -> None:
    values = {
        **CASES["fedbe + fedavgm, watched"],
        "scale-parametrization": "log-variance",
        "log-variance-clamp": clamp,
        "sampler": "pooled-posterior",
        "client-draws": 2,
    }
    [done] = federation(tmp_path, values).run(1)
    own = float(done.posterior.variance.min())
    assert own < 0.7
    for name in ("clients", "average"):
        least = done.state.predictive[f"{name}.variance"].min()
        assert least == pytest.approx(np.exp(-0.01)) if clamp else least < 0.7
