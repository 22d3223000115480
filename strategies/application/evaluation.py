"""Evaluation of a run's posteriors: by the server's network or, without one, by nobody here.

A server that evaluates no posterior builds no network, and does without TensorFlow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from flwr.serverapp import Grid

from bfl.aggregation.server import Server
from bfl.configuration import Configuration
from bfl.data.datasets import Dataset
from bfl.data.datasets.server_data import ServerData
from bfl.engine.processes import cpus_of_this_process
from bfl.errors import ConfigurationError, NotFiniteError, RunError
from bfl.evaluation.evaluated_ensemble import EvaluatedEnsemble, evaluate_ensemble
from bfl.evaluation.uncertainty import check_measures
from bfl.experiments.results import run_folder as files
from bfl.experiments.run.network import NetworkDescription
from bfl.federation import node_description
from bfl.posteriors import Manifest, Posterior
from strategies.federation import Federation
from strategies.run_support import NOT_FINITE, ClientOptions
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


@dataclass(frozen=True)
class NoEvaluator:
    """Stand-in for the evaluator on a server that has no network."""

    configuration: Configuration
    dataset: Dataset
    manifest: Manifest

    validates: ClassVar[bool] = False
    server_data: ClassVar[ServerData | None] = None

    @cached_property
    def initial(self) -> Posterior:
        """The posterior that the run begins with, drawn here by the run's seed."""
        return self.manifest.initial_posterior(
            self.configuration.keys.seed, self.configuration.inference.initial_standard_deviation
        )


def manifest_of_clients(
    configuration: Configuration,
    dataset: Dataset,
    grid: Grid,
    federation: Federation,
    say: Callable[[str], None],
) -> Manifest:
    """Return the network's parameters, for which clients are asked and on which they must agree.

    As many have to answer as in a round: one alone would decide for all.
    """
    keys = configuration.keys
    options = ClientOptions(configuration=configuration, min_clients=keys.min_clients)
    needed = options.needed(federation.size)
    texts = {paths: options.configuration_text(paths=paths) for paths in (False, True)}
    queries = {
        client: node_description.NetworkQuery(
            texts[federation.reads_run_paths(client)], dataset.image_shape, dataset.num_classes
        ).to_content()
        for client in federation.nodes
    }
    found, failed = federation.ask(
        grid,
        node_description.NETWORK_QUERY,
        queries,
        lambda reply: node_description.manifest_from_content(reply.content).to_json(),
        keys,
        needed,
    )
    reasons = "".join(f"\nclient {client}: {reason}" for client, reason in failed.items())
    if len(found) < needed:
        raise RunError(
            f"server-evaluates is false, and {len(found)} of {federation.size} clients have said "
            f"which parameters the network has; min-clients asks for {needed}{reasons}"
        )
    answers: dict[str, list[int]] = defaultdict(list)
    for client, text in found.items():
        answers[text].append(client)
    if len(answers) > 1:
        camps = " and ".join(f"clients {clients}" for clients in answers.values())
        raise ConfigurationError(
            f"the parameters of the network are not the same for {camps}: some run other code, "
            f"or do not tell the truth{reasons}"
        )
    for client, reason in failed.items():
        say(f"before round 1, asked for the network's parameters, client {client}: {reason}")
    [text] = answers
    return Manifest.from_json(text)


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


def write_network(
    folder: files.RunFolder, configuration: Configuration, dataset: Dataset, *, evaluated: bool
) -> None:
    """Write which network it is, and on how many threads the server evaluates it, if it does."""
    threads = None
    if evaluated:
        from bfl.keras import configured_threads

        threads = configured_threads()
    content = NetworkDescription.of(configuration, dataset, threads).to_dict()
    folder.write_json(files.NETWORK, content)
    if dataset.encoding:
        wanted = {"class-names", "columns", "target"}
        folder.write_json(files.FOR_NODES, {k: v for k, v in content.items() if k in wanted})
