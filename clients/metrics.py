"""Numbers that a client reports of its data and of its training."""

from __future__ import annotations

import time

from bfl.configuration import Configuration
from bfl.data.datasets.cache import cached_dataset
from bfl.engine.resources import resident_memory
from bfl.federation.client_metrics import (
    MEMORY,
    NUM_EXAMPLES,
    TRAIN_DIVERGENCE,
    TRAIN_DIVERGENCE_PER_EXAMPLE,
    TRAIN_LIKELIHOOD,
    TRAIN_OBJECTIVE,
    TRAIN_SECONDS,
)
from bfl.federation.outgoing import is_private
from bfl.federation.wire import TrainTask
from bfl.learning.training import LocalResult
from clients.node import Node


def own_examples(node: Node, *, private: bool) -> int:
    """Return how many examples a node says it has: 1 for any number that is to stay unknown."""
    if not node.dataset:
        return 0
    return 1 if private or node.private else len(cached_dataset(node.dataset, "").train_labels)


def training_metrics(result: LocalResult, examples: int, started: float) -> dict[str, float | int]:
    """Return what a client says of its training."""
    return {
        NUM_EXAMPLES: examples,
        TRAIN_OBJECTIVE: result.objective,
        TRAIN_LIKELIHOOD: result.negative_log_likelihood,
        TRAIN_DIVERGENCE: result.divergence,
        TRAIN_DIVERGENCE_PER_EXAMPLE: result.divergence / examples,
        TRAIN_SECONDS: time.perf_counter() - started,
        MEMORY: resident_memory(),
    }


def private_metrics(
    task: TrainTask, node: Node, configuration: Configuration
) -> dict[str, float | int]:
    """Return all that a client says of itself where its update is private: what is known."""
    given = task.examples
    # Privacy of single examples does not hide how many there are.
    hidden = is_private(configuration.outgoing)
    return {NUM_EXAMPLES: own_examples(node, private=hidden) if given is None else int(given.size)}
