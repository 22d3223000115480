"""Evaluation of a client's models on its own test split (``evaluated-by``) or its own test data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bfl.configuration import Configuration
from bfl.data.datasets import Dataset, cached_dataset
from bfl.data.datasets.subset import with_test_examples
from bfl.data.images import Images
from bfl.errors import NotFiniteError
from bfl.evaluation.metrics import evaluate
from bfl.evaluation.metrics.scores import Accuracy
from bfl.evaluation.uncertainty import retention_curve
from bfl.evaluation.uncertainty.base import PredictiveEntropy
from bfl.experiments.run.trainer import personal_architecture
from bfl.federation.client_metrics import (
    BETTER,
    MEME,
    PERSONAL,
    RETENTION_AREA,
    TEST_ACCURACY,
    TEST_EXAMPLES,
)
from bfl.federation.parts import Arrays
from bfl.federation.wire import TrainTask
from bfl.posteriors import Posterior
from bfl.posteriors.posterior import VECTORS
from clients.examples import counted_from, own_classes
from clients.node import Node
from clients.process import cached_configuration

if TYPE_CHECKING:
    from bfl.evaluation.prediction.monte_carlo import Predictor
    from bfl.experiments.run.evaluator import Evaluator
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
    """Return the metrics of a client's models on test images of its own, in the rounds with some.

    Args:
        personal_model: The word of its personal model; empty: the federation's own, or none.
        posterior: The trained posterior of its network.
        personal: What is kept of the personal model; nothing without one.
    """
    family = personal_architecture(configuration, personal_model)
    evaluated = evaluated_metrics(configuration, task, node, trainer, family, (posterior, personal))
    return {**own_test_metrics(node, configuration, task, posterior, evaluated), **evaluated}


def own_test_metrics(
    node: Node,
    configuration: Configuration,
    task: TrainTask,
    posterior: Posterior,
    evaluated: Mapping[str, float | int],
) -> dict[str, float | int]:
    """Return the accuracy of a trained posterior on the client's own test images, and their number.

    It is measured in the rounds in which the server evaluates, with as many Monte Carlo samples.

    Args:
        node: The node; without data of its own there is nothing to measure.
        evaluated: What ``evaluated_metrics`` has measured in this round, where clients evaluate.
    """
    keys = configuration.keys
    # Without all of its network at the server a client evaluates by itself (clients.evaluation).
    if configuration.shared.partial:
        return {}
    if keys.task != "classification":
        return {}
    if not node.dataset or not keys.evaluate_every or task.server_round % keys.evaluate_every:
        return {}
    # The same posterior on the same images, which need not be predicted twice.
    if f"{MEME}accuracy" in evaluated:
        return {
            TEST_ACCURACY: evaluated[f"{MEME}accuracy"],
            TEST_EXAMPLES: evaluated[TEST_EXAMPLES],
        }
    own = cached_dataset(node.dataset, "", keys.reading)
    evaluator = _evaluator(own, task.configuration, task.num_classes, node.plugins_folder)
    labels = evaluator.dataset.test_labels
    try:
        predictions = evaluator.predict(
            posterior,
            samples=keys.evaluate_mc_samples,
            purpose=f"client-{task.partition_id}-round-{task.server_round}",
        )
        accuracy = float(np.mean(predictions.predicted == labels))
    except NotFiniteError:  # no image is right; the update is sent all the same
        accuracy = 0.0
    return {TEST_ACCURACY: accuracy, TEST_EXAMPLES: len(labels)}


@lru_cache(maxsize=2)
def _evaluator(
    own: Dataset, configuration: str, num_classes: int, plugins_folder: str | None
) -> Evaluator:
    """Return what evaluates posteriors on a node's own test images, built once for these data."""
    from bfl.experiments.run.evaluator import Evaluator

    # The network has the federation's classes, of which the node may have seen the first few.
    names = tuple(str(label) for label in range(num_classes))
    dataset = dataclasses.replace(own, class_names=names)
    return Evaluator(cached_configuration(configuration, plugins_folder), dataset)


def evaluated_metrics(
    configuration: Configuration,
    task: TrainTask,
    node: Node,
    trainer: LocalTrainer,
    architecture: Architecture,
    models: tuple[Posterior, Arrays],
) -> dict[str, float | int]:
    """Return how the meme and the personal model do on the client's own test images.

    They are evaluated after training, in the rounds in which the server evaluates and in the last
    one, with as many Monte Carlo samples: the metrics of the global model and the area under the
    retention curve of accuracy by predictive entropy, as ``meme-NAME`` and ``personal-NAME``, and
    the accuracy of the better of the two. A meme that nobody trains is not evaluated. A model whose
    logits are not finite has no image right, and no other number.

    Args:
        models: The meme's posterior, and what is kept of the personal model; nothing without one.
    """
    keys = configuration.keys
    if not keys.clients_evaluate(task.server_round):
        return {}
    images, labels = _own_test_images(configuration, task, node)
    if not labels.size:
        return {}
    meme, personal = models
    numbers: dict[str, float | int] = {TEST_EXAMPLES: int(labels.size)}

    def accuracy_of(
        name: str, network: Network, family: Architecture, posterior: Posterior
    ) -> float:
        predictor = _predictor(network, family, keys.evaluate_precision, name)
        keyed = ("own-test", name, task.partition_id, task.server_round)
        try:
            predictions = (
                predictor.predict_at_mean(posterior, images)
                if keys.evaluate_at == "mean"
                else predictor.predict(
                    posterior,
                    images,
                    samples=keys.evaluate_mc_samples,
                    seed=keys.seed,
                    labels=keyed,
                )
            )
        except NotFiniteError:
            # What it has learnt is sent all the same: the server says whether it is of use.
            numbers[f"{name}accuracy"] = 0.0
            return 0.0
        found = evaluate(predictions, labels, configuration.values)
        correct = Accuracy().values(predictions, labels)
        entropy = PredictiveEntropy().measure(predictions)
        found[RETENTION_AREA] = retention_curve(correct, entropy).area
        numbers.update({f"{name}{metric}": value for metric, value in found.items()})
        return found["accuracy"]

    accuracies = []
    if MEME in configuration.personalization.models:
        accuracies += [accuracy_of(MEME, trainer.network, configuration.architecture, meme)]
    if trainer.companion:
        own = Posterior(*(personal[name] for name in VECTORS))
        accuracies += [accuracy_of(PERSONAL, trainer.companion.network, architecture, own)]
        numbers[BETTER] = max(accuracies)
    return numbers


def _own_test_images(
    configuration: Configuration, task: TrainTask, node: Node
) -> tuple[Images, npt.NDArray[Any]]:
    """Return the client's test images and their labels: those assigned, or all of its own data."""
    if node.dataset:
        dataset = cached_dataset(node.dataset, "", configuration.keys.reading)
        return dataset.test_images, dataset.test_labels
    first_class, _ = own_classes(configuration, task, node)
    keys = configuration.keys
    dataset = with_test_examples(cached_dataset(*node.shared_dataset(keys)), keys.test_examples)
    positions = np.zeros(0, np.int64) if task.test_examples is None else task.test_examples
    labels = counted_from(dataset.test_labels[positions], first_class)
    return dataset.test_images[positions], labels


@lru_cache(maxsize=32)
def _predictor(
    network: Network, architecture: Architecture, precision: Any, role: str
) -> Predictor:
    from bfl.evaluation.prediction.monte_carlo import Predictor

    # A network of its own: one that trains, or is folded elsewhere, may hold other weights.
    return Predictor(network, architecture, precision, role=f"judged-{role}")
