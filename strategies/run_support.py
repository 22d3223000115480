"""Options of the clients, and an application's help, that a Strategy takes besides its parts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from logging import WARNING
from typing import TYPE_CHECKING

from bfl.engine.flower import log
from bfl.federation.wire import Positions
from strategies.server_state import Round, ServerState

if TYPE_CHECKING:
    from bfl.aggregation.server import Server
    from bfl.closing import Closing
    from bfl.configuration import Configuration
    from bfl.evaluation.predictives import Predictive
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
        round_retries: How often clients that fail or are lost are asked again, while fewer than
            these have replied (``messaging.exchange_with_retries``).
        node_timeout: Seconds to wait for all nodes before the first round.
        max_examples: The most examples that a client may claim to hold of its own.
        configuration: The configuration that clients of this package are sent a part of.
        num_classes: The number of classes, for the same.
        partition: The examples of each client by partition id, for the same; None where nodes have
            their own, and ``[None] * clients`` where those say which partition is theirs.
    """

    clients: int = 0
    min_clients: float = 0.5
    round_retries: int = 2
    node_timeout: float = 300.0
    max_examples: int = 1_000_000
    configuration: Configuration | None = None
    num_classes: int = 10
    partition: Sequence[Positions | None] | None = None

    def needed(self, selected: int) -> int:
        """Return how many of so many clients have to send a usable posterior, at least 1."""
        least = self.min_clients
        share = least * selected if least < 1 else min(least, selected)
        return max(1, math.ceil(share - 1e-9))


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
        federation: The nodes, where they have been waited for already.
        state: The state from which the Strategy's own start goes on; None: the first round's.
        folder: The run's folder, for clients that keep a state in a simulation.
        key: The run's own word, by which nodes file what they keep.
        test_partition: The test examples of each client; None where clients evaluate nothing.
    """

    manifest: Manifest | None = None
    server: Server | None = None
    predictive: Predictive | str = "posterior"
    pool_noise: PoolNoise | None = None
    closing: Sequence[Closing | str] = ()
    federation: Federation | None = None
    state: ServerState | None = None
    folder: str = ""
    key: str = ""
    test_partition: Sequence[Positions | None] | None = None

    def warn(self, text: str) -> None:
        """Show what goes wrong with clients."""
        log(WARNING, text)

    def evaluate_models(self, state: ServerState) -> Mapping[str, float]:
        """Return metrics of the predictive's models after a round, for its record."""
        return {}

    def end_round(self, finished: Round) -> bool:
        """Take a round that is over; return whether it is the last."""
        return False

    def show_sums(self, line: str) -> None:
        """Show a line on a round of the closing's sums."""


NOT_FINITE = "logits-not-finite"
"""Number of predictions whose logits are not finite; it stands in place of their metrics.

A round is evaluated before it is saved, so such logits must not end the run."""
