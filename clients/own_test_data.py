"""How well a client's posterior does on test data of the client's own, where it has some."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from bfl.configuration import Configuration
from bfl.data.datasets import Dataset
from bfl.data.datasets.cache import cached_dataset
from bfl.errors import NotFiniteError
from bfl.federation.client_metrics import TEST_ACCURACY, TEST_EXAMPLES
from bfl.federation.wire import TrainTask
from bfl.plugins import ANY_PLUGIN, PluginPolicy
from bfl.posteriors import Posterior
from clients.process import cached_configuration

if TYPE_CHECKING:
    from bfl.experiments.run.evaluator import Evaluator


def own_test_metrics(
    location: str,
    configuration: Configuration,
    task: TrainTask,
    posterior: Posterior,
    policy: PluginPolicy = ANY_PLUGIN,
) -> dict[str, float | int]:
    """Return the accuracy of a trained posterior on the client's own test images, and their number.

    It is measured in the rounds in which the server evaluates, with as many Monte Carlo samples.

    Args:
        location: The node's own data set; empty: it has none, and there is nothing to measure.
        configuration: The run's configuration.
        task: The round's task.
        posterior: What the client has learnt.
        policy: Where plugins are on this node, and which of them it takes.
    """
    keys = configuration.keys
    # Without all of its network at the server a client judges by itself (clients.judging).
    if configuration.shared.partial:
        return {}
    if not location or not keys.evaluate_every or task.server_round % keys.evaluate_every:
        return {}
    own = cached_dataset(location, "")
    evaluator = _evaluator(own, task.configuration, task.num_classes, policy)
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
    """Return what judges posteriors on a node's own test images, built once for these data."""
    from bfl.experiments.run.evaluator import Evaluator

    # The network has the federation's classes, of which the node may have seen the first few.
    names = tuple(str(label) for label in range(num_classes))
    dataset = dataclasses.replace(own, class_names=names)
    return Evaluator(cached_configuration(configuration, policy), dataset)
