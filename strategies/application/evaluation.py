"""Evaluation of a run's posteriors by the server's network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bfl.configuration import Configuration
from bfl.data.datasets import Dataset
from bfl.engine.processes import cpus_of_this_process
from bfl.errors import ConfigurationError
from bfl.evaluation.evaluated_ensemble import EvaluatedEnsemble, evaluate_ensemble
from bfl.evaluation.uncertainty import check_measures
from bfl.experiments.results import run_folder as files
from bfl.experiments.run.network import NetworkDescription
from strategies.server_state import ServerState

if TYPE_CHECKING:
    from bfl.experiments.run.evaluator import EvaluationNetwork


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
    threads: int | None = client_threads or wanted
    if threads == wanted:
        configure(wanted, cpus_of_this_process())
        threads = configured_threads()
    if threads != wanted:
        raise ConfigurationError(
            f"server-threads is {wanted}, and this process computes with {threads} threads; what "
            f"the server learns would have other bits. Allowed: server-threads={threads}, a "
            f"process of its own with BFL_CPUS={wanted} in its environment, or in the serial "
            f"engine num_cpus {wanted} a client in client_resources of its configuration"
        )


def evaluate_models(evaluator: Any, state: ServerState) -> EvaluatedEnsemble | None:
    """Return what the models of the round that a state is of predict for the test images.

    None if nothing but the posterior predicts; NotFiniteError if the logits of no model are finite.
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
    logits = evaluator.server.member_logits(models, labels=labels, images=test.test_images)
    return evaluate_ensemble(logits, test.test_labels)


def write_network(folder: files.RunFolder, configuration: Configuration, dataset: Dataset) -> None:
    """Write which network it is, and on how many threads the server evaluates it."""
    from bfl.keras import configured_threads

    content = NetworkDescription.of(configuration, dataset, configured_threads()).to_dict()
    folder.write_json(files.NETWORK, content)
    if dataset.encoding:
        wanted = {"class-names", "columns", "target"}
        folder.write_json(files.FOR_NODES, {k: v for k, v in content.items() if k in wanted})
