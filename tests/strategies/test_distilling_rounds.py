"""Rounds of FedBE and V-Distillation: killed while distilling, and what is distilled from what."""

from pathlib import Path

import numpy as np
import pytest
from numpy_clients import KilledError
from numpy_server import NumpyServer
from test_parts_contract import CASES, ROUNDS, D, P, bits, federation

from bfl.aggregation.server import DistillationTask, Distilled
from bfl.configuration import resolve


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


def test_what_is_distilled_nears_the_ensemble(tmp_path: Path) -> None:
    for done in federation(tmp_path, CASES["fedbe"]).run(ROUNDS):
        assert done.metrics["distillation-after"] < done.metrics["distillation-before"]
        assert done.metrics["distillation-models"] > 1


def test_v_distillation_is_fedbe_with_clients_alone_and_sgd(tmp_path: Path) -> None:
    alone = {"ensemble-samples": 0, "ensemble-average": False, "distillation-optimizer": "sgd"}
    fedbe = federation(tmp_path / "fedbe", {"strategy": "fedbe", **alone})
    vanilla = federation(tmp_path / "v", {"strategy": "v-distillation"})
    assert bits(fedbe.run(ROUNDS)) == bits(vanilla.run(ROUNDS))
    averaging = federation(tmp_path / "fedavg", {"strategy": "fedavg"})
    assert bits(averaging.run(1))[0][1] != bits(vanilla.run(1))[0][1]
    # What the student here does not read (momentum, decay, augmentation) is the same too.
    one, other = (
        resolve(values).values
        for values in ({"strategy": "fedbe", **alone}, {"strategy": "v-distillation"})
    )
    assert {k for k in {**one, **other} if one.get(k) != other.get(k)} == {"strategy"}


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
