"""Options of the clients, and an application's help, that a Strategy takes besides its parts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from logging import WARNING
from typing import TYPE_CHECKING, Any

from bfl.aggregation.ensemble import LEFT_OUT
from bfl.aggregation.refinements import AFTER, BEFORE
from bfl.engine.flower import log
from bfl.federation.client_metrics import CONTINUED, recorded
from bfl.federation.wire import Positions
from bfl.texts import from_json
from strategies.server_state import Round, ServerState

if TYPE_CHECKING:
    from bfl.aggregation.server import Server
    from bfl.closing import Closing
    from bfl.configuration import Configuration
    from bfl.evaluation.predictives import Predictive
    from bfl.learning.example_privacy import SumsNoise
    from bfl.posteriors import Manifest
    from strategies.federation import Federation
    from strategies.privacy import PoolNoise


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """Options of the clients: their number, what they are sent, how long they are waited for.

    Attributes:
        clients: The number of clients; 0: as many as there are SuperNodes.
        min_clients: How many of the selected clients have to send a usable posterior: below 1 a
            share of them, from 1 a number.
        round_retries: How often clients that fail are asked again when there are fewer.
        node_timeout: Seconds to wait for all nodes before the first round.
        max_examples: The most examples that a client may claim to hold of its own.
        configuration: The configuration that clients of this package are sent a part of, or a JSON
            object of flat keys.
        num_classes: The number of classes, for the same.
        partition: The examples of each client by partition id, for the same; None where nodes have
            their own, and ``[None] * clients`` where those say which partition is theirs.
    """

    clients: int = 0
    min_clients: float = 0.5
    round_retries: int = 2
    node_timeout: float = 300.0
    max_examples: int = 1_000_000
    configuration: Configuration | str = "{}"
    num_classes: int = 10
    partition: Sequence[Positions | None] | None = None

    def needed(self, selected: int) -> int:
        """Return how many of so many clients have to send a usable posterior, at least 1."""
        least = self.min_clients
        share = least * selected if least < 1 else min(least, selected)
        return max(1, math.ceil(share - 1e-9))

    def configuration_text(self, *, paths: bool = True) -> str:
        """Return what clients are sent of the configuration; a text of your own as it is.

        Args:
            paths: Whether the clients look for the run's data where the server has them.
        """
        if isinstance(self.configuration, str):
            return self.configuration
        return json.dumps(self.configuration.for_clients(paths=paths))

    def known_configuration(self) -> Configuration | None:
        """Return what is known of the clients' configuration; None: they are sent none."""
        if not isinstance(self.configuration, str):
            return self.configuration
        values = from_json(self.configuration)
        if not values:
            return None
        from bfl.configuration import resolve

        return resolve(values, check_data=False, check_parts=False)


@dataclass(kw_only=True)
class RunSupport:
    """Help of an application around a Strategy: objects that it lends, and methods for its rounds.

    A plain Strategy needs nothing of it. An application overrides the methods that it needs: each
    is called by ``start``, in the order in which they stand here.

    Attributes:
        manifest: The parameters of the network, whose minima updates and pooled posteriors are held
            to, and whose moving statistics no server optimizer moves; None where the server does
            not know them.
        server: The server's own data and network, for a refinement or a weighting that needs them.
        predictive: What predicts besides the posterior.
        pool_noise: Noise on the pool, for differential privacy (``strategies.privacy``).
        closing: What clients add up over their data after the last round of ``start``.
        sums_noise: Noise that clients add to the closing's sums, for differential privacy.
        federation: The nodes, where they have been waited for already.
        state: The state to go on from; None: before the first round.
        folder: The run's folder, for clients that keep a state in a simulation.
        key: The run's own word, by which nodes file what they keep.
        test_partition: The test examples of each client; None where clients evaluate nothing.
        shows_replies: Whether ``show_replies`` is called.
    """

    manifest: Manifest | None = None
    server: Server | None = None
    predictive: Predictive | str = "posterior"
    pool_noise: PoolNoise | None = None
    closing: Sequence[Closing | str] = ()
    sums_noise: SumsNoise | None = None
    federation: Federation | None = None
    state: ServerState | None = None
    folder: str = ""
    key: str = ""
    test_partition: Sequence[Positions | None] | None = None
    shows_replies: bool = False

    def warn(self, text: str) -> None:
        """Show what goes wrong with clients."""
        log(WARNING, text)

    def show_replies(self, selected: int, counts: Mapping[str, int]) -> None:
        """Show what has become of a round so far, as it begins and after each reply.

        Args:
            selected: How many clients have been asked.
            counts: How many replies are usable (``clients``), and ``failures`` and ``refused``.
        """

    def evaluate_models(self, state: ServerState) -> Mapping[str, float]:
        """Return metrics of the predictive's models after a round, for its record."""
        return {}

    def end_round(self, finished: Round) -> bool:
        """Take a round that is over; return whether it is the last.

        Raises:
            ImplausibleUpdatesError: It is made again, without some clients.
        """
        return False

    def begin_sums(self, release: str) -> None:
        """Take the word for a round of the closing's sums, before anybody is asked."""

    def show_sums(self, line: str) -> None:
        """Show a line on a round of the closing's sums."""


NOT_FINITE = "logits-not-finite"
"""Number of predictions whose logits are not finite; it stands in place of their metrics.

A round is evaluated before it is saved, so such logits must not end the run."""

FEW_EFFECTIVE_CLIENTS = 2.0 + 1e-6
"""Effective number of clients, of three or more, up to which a warning is given: one of them, or
two that send the same, outweigh all others."""

CLEAR_NATS, CLEAR_SHARE = 0.01, 0.01
"""By how much more a student's cross-entropy is clearly more: a late round's steps may change a
student that has learnt all, and say nothing."""


class Warnings:
    """Warns of what goes wrong with clients: the same once, and again in one line.

    Args:
        warn: Shows a warning.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._given: set[str] = set()

    def _is_first(self, key: str) -> bool:
        new = key not in self._given
        self._given.add(key)
        return new

    def warn_of_client(self, where: str, partition_id: int, text: str) -> None:
        """Warn that a client has failed or was refused; ``where`` names the round."""
        last = text.strip().splitlines()[-1].removeprefix(CONTINUED)
        reason = text if self._is_first(text) else f"{last} (as before)"
        self._warn(f"{where}, client {partition_id}: {reason}")

    def warn_of_weights(self, finished: Round, weighting: str) -> None:
        """Warn once if one client or two of at least three outweigh all others."""
        metrics, clients = finished.metrics, len(finished.clients)
        effective = metrics.get("effective-clients", math.inf)
        if clients >= 3 and effective <= FEW_EFFECTIVE_CLIENTS and self._is_first("weights"):
            self._warn(
                f"round {finished.number}: the weights of {clients} clients are worth "
                f"{effective:.3g} (effective-clients); the largest is "
                f"{metrics['largest-weight']:.3g} (weighting {weighting}); later rounds have the "
                "numbers in their records alone"
            )

    def warn_of_numbers(self, server_round: int, metrics: Mapping[str, Any]) -> None:
        """Warn once of each number that says that logits were not finite, or nothing was learnt."""
        for name in metrics:
            if name.startswith(recorded("")):
                continue
            problem = describe_number(name, metrics)
            if problem and self._is_first(f"number {name}"):
                self._warn(f"round {server_round}: {problem}; later rounds have the number alone")


def describe_number(name: str, metrics: Mapping[str, Any]) -> str | None:
    """Return what a number says of logits that are not finite, or of a student; None: nothing."""
    value = metrics[name]
    cause = "a client may have sent too large values"
    if name.endswith(NOT_FINITE):
        what = f"{value:g} logits are not finite ({name}), so there are no metrics of them"
        return f"{what}; {cause}"
    if name.endswith(LEFT_OUT):
        what = f"{value:g} models of the ensemble are left out ({name})"
        return f"{what}: their logits are not finite; {cause}"
    before = metrics.get(BEFORE, math.inf)
    if name != AFTER or value <= before + max(CLEAR_NATS, CLEAR_SHARE * before):
        return None
    return (
        f"the student has come away from its targets, {value:.4g} nats after distillation "
        f"({AFTER}) and {before:.4g} before; its steps may be too large "
        "(distillation-learning-rate)"
    )
