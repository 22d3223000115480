"""Evaluation of a run's posteriors by the server's network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bfl.aggregation.server import Server
from bfl.configuration import Configuration
from bfl.data.datasets import Dataset
from bfl.engine.processes import cpus_of_this_process
from bfl.errors import ConfigurationError, NotFiniteError
from bfl.evaluation.evaluated_ensemble import EvaluatedEnsemble, evaluate_ensemble
from bfl.evaluation.uncertainty import check_measures
from bfl.experiments.results import run_folder as files
from bfl.experiments.run.network import NetworkDescription
from strategies.server_state import ServerState

if TYPE_CHECKING:
    from bfl.experiments.run.evaluator import EvaluationNetwork

NOT_FINITE = "logits-not-finite"
"""Number of predictions whose logits are not finite; it stands in place of their metrics.

A round is evaluated before it is saved, so such logits must not end the run."""


def build_network(
    configuration: Configuration, dataset: Dataset, client_threads: int | None
) -> EvaluationNetwork:
    """Return the network that the server evaluates with, in TensorFlow with the run's threads."""
    from bfl.experiments.run.evaluator import EvaluationNetwork

    if configuration.keys.task == "classification":
        check_measures(dataset.num_classes, configuration.values)
    start_tensorflow(configuration, client_threads)
    return EvaluationNetwork.of(configuration, dataset)


def start_tensorflow(configuration: Configuration, client_threads: int | None) -> None:
    """Start TensorFlow in the server's process with the threads of a run.

    Where what the network computes enters the result, these are ``server-threads``, as the bits of
    a gradient depend on their number; elsewhere all that the process may use. A process keeps the
    number that it has begun with.

    Args:
        client_threads: The threads of clients in the same process; None: they have their own.

    Raises:
        ConfigurationError: The process computes with another number of threads.
    """
    from bfl.keras import configure, configured_threads

    if not configuration.server_network_decides:
        configure(cpus_of_this_process())
        return
    wanted = configuration.keys.server_threads
    if client_threads not in (None, wanted):
        raise ConfigurationError(
            f"server-threads is {wanted}, and the serial engine computes the server in the process "
            f"of its clients, which have {client_threads}; what the server learns would have other "
            f"bits. Allowed: server-threads={client_threads}, or num_cpus {wanted} a client in "
            "client_resources of the backend's configuration"
        )
    configure(wanted, cpus_of_this_process())
    if (has := configured_threads()) != wanted:
        raise ConfigurationError(
            f"server-threads is {wanted}, and TensorFlow already computes with {has} threads in "
            f"this process; what the server learns would have other bits. Allowed: a process of "
            f"its own, BFL_CPUS={wanted} in the environment before the process's first run, or "
            f"server-threads={has}"
        )


def own_server(evaluator: Any) -> Server:
    """Return what the server can do with its own images and network; it takes no time to make."""
    from bfl.experiments.run.evaluator import NetworkServer

    return NetworkServer(
        evaluator.configuration, evaluator.dataset, evaluator.server_data, evaluator.predictor
    )


def evaluated_ensemble(evaluator: Any, state: ServerState) -> EvaluatedEnsemble | None:
    """Return what the predictive's models of a round predict for the test images.

    Args:
        state: Where the federation stands after the round.

    Returns:
        None if nothing but the posterior predicts.

    Raises:
        NotFiniteError: The logits of no model are finite.
    """
    configuration, test = evaluator.configuration, evaluator.dataset
    models = configuration.predictive.models(
        state.predictive,
        sampler=configuration.sampler,
        manifest=evaluator.manifest,
        seed=configuration.keys.seed,
        server_round=state.server_round,
    )
    if models is None:
        return None
    labels = ("ensemble", state.server_round)
    logits = own_server(evaluator).member_logits(models, labels=labels, images=test.test_images)
    return evaluate_ensemble(logits, test.test_labels)


def not_finite(error: NotFiniteError, prefix: str = "") -> dict[str, float]:
    """Return the number that is recorded in place of metrics under that prefix."""
    return {f"{prefix}{NOT_FINITE}": float(error.bad)}


def write_network(folder: files.RunFolder, configuration: Configuration, dataset: Dataset) -> None:
    """Write which network it is, and on how many threads the server evaluates it."""
    from bfl.keras import configured_threads

    content = NetworkDescription.of(configuration, dataset, configured_threads()).to_dict()
    folder.write_json(files.NETWORK, content)
    if dataset.encoding:
        wanted = {"class-names", "columns", "target"}
        folder.write_json(files.FOR_NODES, {k: v for k, v in content.items() if k in wanted})
