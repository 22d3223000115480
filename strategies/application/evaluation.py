"""Evaluation of each round, on the test images and on the server's own to validate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flwr.app import ArrayRecord, MetricRecord

from bfl.aggregation.server import Server
from bfl.configuration import Configuration
from bfl.data.datasets import Dataset
from bfl.data.datasets.server_data import HELD_BACK, ServerData, load_server_data
from bfl.errors import ConfigurationError, NotFiniteError
from bfl.evaluation.evaluated_ensemble import ENSEMBLE, EvaluatedEnsemble, evaluate_ensemble
from bfl.experiments.results.best import VALIDATION
from bfl.federation.wire import posterior_from_arrays
from strategies.course import NOT_FINITE
from strategies.federation import Federation
from strategies.server_state import ServerState


def not_finite(error: NotFiniteError, prefix: str = "") -> dict[str, float]:
    """Return the number that is recorded in place of metrics under that prefix."""
    return {f"{prefix}{NOT_FINITE}": float(error.bad)}


def _if_finite(
    evaluate_models: Callable[[], Mapping[str, float]], prefix: str = ""
) -> Mapping[str, float]:
    """Return metrics, or what stands in their place."""
    try:
        return evaluate_models()
    except NotFiniteError as error:
        return not_finite(error, prefix)


def server_data(
    configuration: Configuration,
    dataset: Dataset,
    clients: int,
    federation: Federation | None = None,
) -> ServerData | None:
    """Return the server's own images; None if it has none.

    Args:
        federation: The nodes; None before they are known.

    Raises:
        ConfigurationError: The images cannot be had as configured, or are to be held back from
            nodes that have data of their own.
        DataError: The server's other data set cannot be had.
    """
    keys = configuration.keys
    own = [p for p, n in federation.own_examples.items() if n] if federation else []
    if keys.server_data == HELD_BACK and own:
        raise ConfigurationError(
            f"server-data is '{HELD_BACK}', and the SuperNodes of partitions "
            f"{', '.join(map(str, own))} have data of their own, from which the server can hold "
            "nothing back; allowed: another data set, or nothing"
        )
    return load_server_data(
        keys.server_data,
        dataset,
        data_dir=keys.data_dir,
        reading=keys.reading,
        examples=keys.server_examples,
        unused=keys.unused_examples,
        train_examples=keys.train_examples,
        clients=clients,
        seed=keys.seed,
        labelled=keys.server_labels,
    )


def evaluation(evaluator: Any) -> Callable[[int, ArrayRecord], MetricRecord | None]:
    """Return Flower's ``evaluate_fn``: test metrics where they are due, validation every round.

    Where logits are not finite, ``logits-not-finite`` stands in the metrics' place.

    Args:
        evaluator: Evaluates a posterior, see ``bfl.experiments.run.evaluator``.
    """
    every = evaluator.configuration.keys.evaluate_every
    if evaluator.configuration.shared.partial:  # the server has no head
        every = 0

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        if not server_round:  # a run's record begins with round 1
            return None
        tested = every and server_round % every == 0
        if not tested and not evaluator.validates:
            return None
        posterior = posterior_from_arrays(arrays)
        metrics: dict[str, float] = {}
        if tested:
            metrics |= _if_finite(lambda: evaluator.metrics(posterior, server_round))
        if evaluator.validates:
            metrics |= _if_finite(
                lambda: evaluator.validation_metrics(posterior, server_round), VALIDATION
            )
        return MetricRecord(dict(metrics))

    return evaluate


def own_server(evaluator: Any) -> Server:
    """Return what the server can do with its own images and network; it takes no time to make."""
    from bfl.experiments.run.evaluator import NetworkServer

    return NetworkServer(
        evaluator.configuration, evaluator.dataset, evaluator.server_data, evaluator.predictor
    )


def model_evaluation(evaluator: Any) -> Callable[[ServerState], Mapping[str, float]]:
    """Return what evaluates the predictive's models on the test images where that is due."""
    every = evaluator.configuration.keys.evaluate_every

    def evaluate_models(state: ServerState) -> Mapping[str, float]:
        if not every or state.server_round % every:
            return {}
        return _if_finite(lambda: metrics(state), ENSEMBLE)

    def metrics(state: ServerState) -> Mapping[str, float]:
        evaluated = evaluated_ensemble(evaluator, state)
        return evaluated.round_metrics(evaluator.configuration.values) if evaluated else {}

    return evaluate_models


def evaluated_ensemble(evaluator: Any, state: ServerState) -> EvaluatedEnsemble | None:
    """Return what the predictive's models of a round predict for the test images.

    Args:
        evaluator: As for ``own_server``.
        state: Where the federation stands after the round.

    Returns:
        None if nothing but the posterior predicts.

    Raises:
        NotFiniteError: The logits of no model are finite.
    """
    configuration = evaluator.configuration
    models = configuration.predictive.models(
        state.predictive,
        sampler=configuration.sampler,
        manifest=evaluator.manifest,
        seed=configuration.keys.seed,
        server_round=state.server_round,
    )
    if models is None:
        return None
    test = evaluator.dataset
    logits = own_server(evaluator).member_logits(
        models, labels=("ensemble", state.server_round), images=test.test_images
    )
    return evaluate_ensemble(logits, test.test_labels)
