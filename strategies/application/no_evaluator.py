"""A server that evaluates no posterior: it builds no network, and does without TensorFlow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from flwr.app import Message
from flwr.serverapp import Grid

from bfl.configuration import Configuration
from bfl.data.datasets import Dataset
from bfl.data.datasets.server_data import ServerData
from bfl.errors import ConfigurationError, RunError
from bfl.federation.client_metrics import neutralized
from bfl.federation.node_description import NETWORK_QUERY, NetworkQuery, manifest_from_content
from bfl.federation.wire import WireFormatError
from bfl.posteriors import Manifest, Posterior
from strategies.federation import Federation
from strategies.flower_clients import RetryPolicy
from strategies.messaging import UsableReplies, exchange_with_retries
from strategies.preflight import text_for_clients


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

    As many have to answer as have to send a usable posterior in a round: one alone would decide for
    all. Of the others it is said why they have not.

    Raises:
        ConfigurationError: They do not agree.
        RunError: Fewer clients than ``min-clients`` have answered.
    """
    keys = configuration.keys
    retry_policy = RetryPolicy(keys.client_timeout, keys.min_clients, keys.round_retries)
    usable = UsableReplies(retry_policy.needed(federation.size))
    shape, classes = dataset.image_shape, dataset.num_classes
    texts = {paths: text_for_clients(configuration, paths=paths) for paths in (False, True)}
    messages = []
    for partition_id, node in federation.nodes.items():
        query = NetworkQuery(texts[federation.reads_run_paths(partition_id)], shape, classes)
        messages.append(Message(query.to_content(), node, NETWORK_QUERY))
    said: dict[str, list[int]] = defaultdict(list)
    failed: list[str] = []
    replies = exchange_with_retries(
        grid,
        messages,
        silence=retry_policy.silence,
        retries=retry_policy.retries,
        usable=usable,
        report=lambda node, reason: None,
    )
    for reply in replies:
        client = federation.partition_of(reply.metadata.src_node_id)
        try:
            if reply.has_error():
                raise RunError(reply.error.reason)
            said[manifest_from_content(reply.content).to_json()].append(client)
            usable.found += 1
        except (RunError, WireFormatError) as error:
            failed.append(f"client {client}: {neutralized(str(error))}")
    reasons = "".join(f"\n{reason}" for reason in failed)
    if not usable.enough:
        raise RunError(
            f"server-evaluates is false, and {usable.found} of {federation.size} clients have said "
            f"which parameters the network has; min-clients asks for {usable.needed}{reasons}"
        )
    if len(said) > 1:
        camps = " and ".join(f"clients {sorted(clients)}" for clients in said.values())
        raise ConfigurationError(
            f"the parameters of the network are not the same for {camps}: some run other code, "
            f"or do not tell the truth{reasons}"
        )
    for reason in failed:
        say(f"before round 1, asked for the network's parameters, {reason}")
    [text] = said
    return Manifest.from_json(text)
