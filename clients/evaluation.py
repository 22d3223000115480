"""Evaluation of a client's models on its own test split (``evaluated-by``) or its own test data."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bfl.configuration import Configuration
from bfl.data.datasets import cached_dataset
from bfl.data.datasets.subset import with_test_examples
from bfl.data.images import Images
from bfl.errors import NotFiniteError
from bfl.evaluation.metrics import evaluate
from bfl.evaluation.metrics.scores import Accuracy
from bfl.evaluation.uncertainty import retention_curve
from bfl.evaluation.uncertainty.base import PredictiveEntropy
from bfl.experiments.run.network import personal_architecture
from bfl.federation import client_metrics as names
from bfl.federation.parts import Arrays
from bfl.federation.wire import TrainTask
from bfl.posteriors import Posterior
from bfl.posteriors.posterior import VECTORS
from clients.examples import own_classes, own_reading
from clients.node import Node

if TYPE_CHECKING:
    from bfl.evaluation.prediction.monte_carlo import Predictor
    from bfl.learning.models import Architecture
    from bfl.learning.networks.network import Network
    from bfl.learning.training.trainer import LocalTrainer


def evaluate_models(
    configuration: Configuration,
    task: TrainTask,
    node: Node,
    trainer: LocalTrainer,
    personal_model: str,
    posterior: Posterior,
    personal: Arrays,
) -> dict[str, float | int]:
    """Return how a client's models do on test images of its own, in the rounds that are evaluated.

    Where clients evaluate, these are the rounds in which the server would, and the last one: the
    metrics of the global model (``meme-NAME``) and the personal one (``personal-NAME``), the area
    under the retention curve of accuracy by predictive entropy, and the accuracy of the better of
    the two. A meme that nobody trains is not evaluated. Elsewhere a node with data of its own says
    the accuracy of the trained posterior (``test-accuracy``) in the rounds of the server's.

    A model whose logits are not finite has no image right, and no other number: what it has learnt
    is sent all the same, and the server says whether it is of use.

    Args:
        personal_model: The word of its personal model; empty: the federation's own, or none.
        posterior: The trained posterior of its network.
        personal: What is kept of the personal model; nothing without one.
    """
    keys = configuration.keys
    every = keys.evaluate_every if keys.task == "classification" and node.dataset else 0
    # Without all of its network at the server, the client's own head is evaluated by clients alone.
    own_test = every and not configuration.shared.partial and task.server_round % every == 0
    by_clients = keys.clients_evaluate(task.server_round)
    models = configuration.personalization.models if by_clients else ()
    if not (own_test or models):
        return {}
    images, labels = _own_test_images(configuration, task, node)
    if not labels.size:
        return {}

    def judge(
        name: str, network: Network, family: Architecture, model: Posterior
    ) -> dict[str, float]:
        predictor = _predictor(network, family, name)
        drawn: Any = {"samples": keys.evaluate_mc_samples, "seed": keys.seed}
        drawn["labels"] = ("own-test", name, task.partition_id, task.server_round)
        try:
            predictions = (
                predictor.predict_at_mean(model, images)
                if keys.evaluate_at == "mean"
                else predictor.predict(model, images, **drawn)
            )
        except NotFiniteError:
            return {"accuracy": 0.0}
        if not models:  # of own data, whose test labels may be none of the run's classes
            return {"accuracy": float(np.mean(predictions.predicted == labels))}
        metrics = evaluate(predictions, labels, configuration.values)
        correct = Accuracy().values(predictions, labels)
        entropy = PredictiveEntropy().measure(predictions)
        return {**metrics, names.RETENTION_AREA: retention_curve(correct, entropy).area}

    numbers: dict[str, float | int] = {names.TEST_EXAMPLES: int(labels.size)}
    accuracies = []
    if own_test or names.MEME in models:
        metrics = judge(names.MEME, trainer.network, configuration.architecture, posterior)
        if own_test:
            numbers[names.TEST_ACCURACY] = metrics["accuracy"]
        if names.MEME in models:
            numbers |= {f"{names.MEME}{metric}": value for metric, value in metrics.items()}
            accuracies.append(metrics["accuracy"])
    if models and trainer.companion:
        own = Posterior(*(personal[name] for name in VECTORS))
        family = personal_architecture(configuration, personal_model)
        metrics = judge(names.PERSONAL, trainer.companion.network, family, own)
        numbers |= {f"{names.PERSONAL}{metric}": value for metric, value in metrics.items()}
        numbers[names.BETTER] = max([*accuracies, metrics["accuracy"]])
    return numbers


def _own_test_images(
    configuration: Configuration, task: TrainTask, node: Node
) -> tuple[Images, npt.NDArray[Any]]:
    """Return the client's test images and their labels: those assigned, or all of its own data."""
    keys = configuration.keys
    if node.dataset:
        dataset = cached_dataset(node.dataset, "", own_reading(keys.reading))
        return dataset.test_images, dataset.test_labels
    first_class, _ = own_classes(configuration, task, node)
    dataset = with_test_examples(cached_dataset(*node.shared_dataset(keys)), keys.test_examples)
    positions = np.zeros(0, np.int64) if task.test_examples is None else task.test_examples
    return dataset.test_images[positions], dataset.test_labels[positions] - first_class


@lru_cache(maxsize=32)
def _predictor(network: Network, architecture: Architecture, role: str) -> Predictor:
    from bfl.evaluation.prediction.monte_carlo import Predictor

    # A network of its own: one that trains, or is folded elsewhere, may hold other weights.
    return Predictor(network, architecture, role=f"judged-{role}")
