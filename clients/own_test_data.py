"""Evaluation of a client's posterior on its own test data, where it has some."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from bfl.configuration import Configuration
from bfl.data.datasets import Dataset
from bfl.data.datasets.cache import cached_dataset
from bfl.errors import NotFiniteError
from bfl.federation.client_metrics import MEME, TEST_ACCURACY, TEST_EXAMPLES
from bfl.federation.wire import TrainTask
from bfl.plugins import PluginPolicy
from bfl.posteriors import Posterior
from clients.node import Node
from clients.process import cached_configuration

if TYPE_CHECKING:
    from bfl.experiments.run.evaluator import Evaluator


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
        configuration: The run's configuration.
        task: The round's task.
        posterior: What the client has learnt.
        evaluated: What ``evaluated_metrics`` has measured in this round, where clients evaluate.
    """
    keys = configuration.keys
    # Without all of its network at the server a client evaluates by itself (clients.evaluation).
    if configuration.shared.partial:
        return {}
    if not node.dataset or not keys.evaluate_every or task.server_round % keys.evaluate_every:
        return {}
    # The same posterior on the same images, which need not be predicted twice.
    if f"{MEME}accuracy" in evaluated:
        return {
            TEST_ACCURACY: evaluated[f"{MEME}accuracy"],
            TEST_EXAMPLES: evaluated[TEST_EXAMPLES],
        }
    own = cached_dataset(node.dataset, "")
    evaluator = _evaluator(own, task.configuration, task.num_classes, node.plugins)
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
    own: Dataset, configuration: str, num_classes: int, policy: PluginPolicy
) -> Evaluator:
    """Return what evaluates posteriors on a node's own test images, built once for these data."""
    from bfl.experiments.run.evaluator import Evaluator

    # The network has the federation's classes, of which the node may have seen the first few.
    names = tuple(str(label) for label in range(num_classes))
    dataset = dataclasses.replace(own, class_names=names)
    return Evaluator(cached_configuration(configuration, policy), dataset)
