"""pfl-research's own cost: federated averaging of clients that do not train, in one process.

Run with the interpreter of an environment that has pfl and PyTorch. It prints one JSON line: the
milliseconds a client of each round but the first.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel

NEVER = 10**9


class Parameters(torch.nn.Module):
    """A model of so many parameters in one tensor."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(size))

    def loss(self, x: Any, y: Any, is_eval: bool = False) -> torch.Tensor:
        """Return something to minimise; it is never called."""
        return (self.weight[0] * x - y).square().sum()

    def metrics(self, x: Any, y: Any) -> dict[str, Any]:
        """Return nothing."""
        return {}


class Clock(TrainingProcessCallback):
    """Notes when rounds end."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """Note the time."""
        self.ends.append(time.perf_counter())
        return False, Metrics()


def run(parameters: int, clients: int, rounds: int) -> list[float]:
    """Return the milliseconds a client of each round but the first, which also evaluates."""
    one = np.ones((1, 1), np.float32)
    data = FederatedDataset(
        lambda user_id: Dataset([one, one], user_id=user_id),
        get_user_sampler("minimize_reuse", list(range(clients))),
    )
    module = Parameters(parameters)
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    clock = Clock()
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds + 1,
            evaluation_frequency=NEVER,
            train_cohort_size=clients,
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(training_data=data, val_data=data),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=0, local_learning_rate=0.1, local_batch_size=None
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[clock],
        send_metrics_to_platform=False,
    )
    return [float(seconds) / clients * 1e3 for seconds in np.diff(clock.ends)]


def main() -> None:
    """Run as the options say and print one JSON line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--parameters", type=int, required=True)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    milliseconds = run(given.parameters, given.clients, given.rounds)
    print(json.dumps({"milliseconds": milliseconds, "pfl": "0.6.0", "torch": torch.__version__}))


if __name__ == "__main__":
    main()
