"""Clients that do nothing: what a federation costs without training.

The ClientApp sends back the posterior that it gets, through this project's wire format. Around it
there are two ServerApps, this project's and Flower's, each of which notes when its rounds end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from bfl.aggregation.pooling import PoolingRule, pooling_rules
from bfl.aggregation.weightings import weightings
from bfl.configuration import resolve
from bfl.federation import client_metrics
from bfl.federation.node_description import NodeDescription, code_digest
from bfl.federation.wire import (
    ARRAYS,
    posterior_from_arrays,
    posterior_to_arrays,
    reply_content,
)
from bfl.posteriors import Posterior
from strategies import strategy_class
from strategies.federation import discover
from strategies.method import ClientOptions, RunSupport
from strategies.server_state import Round

EXAMPLES = 10
METRICS = {
    client_metrics.NUM_EXAMPLES: EXAMPLES,
    client_metrics.TRAIN_OBJECTIVE: 1.0,
    client_metrics.TRAIN_LIKELIHOOD: 1.0,
    client_metrics.TRAIN_DIVERGENCE: 0.0,
    client_metrics.TRAIN_DIVERGENCE_PER_EXAMPLE: 0.0,
    client_metrics.TRAIN_SECONDS: 0.0,
    client_metrics.MEMORY: 100.0,
}
"""Metrics that a client of this project reports."""

client = ClientApp()
ours = ServerApp()
flowers = ServerApp()
large = ServerApp()


@client.query()
def describe(message: Message, context: Context) -> Message:
    """Say which client this node plays."""
    node = context.node_config
    description = NodeDescription(
        int(node["partition-id"]), int(node["num-partitions"]), 0, code_digest()
    )
    return Message(description.to_content(), reply_to=message)


@client.train()
def train(message: Message, context: Context) -> Message:
    """Send back what was received."""
    arrays: Any = message.content[ARRAYS]
    return Message(reply_content(posterior_from_arrays(arrays), METRICS), reply_to=message)


@dataclass
class Federation:
    """Federation that the ServerApps run, with its measurements.

    Attributes:
        clients: The number of clients, all of which take part in each round.
        gaussians: The number D of Gaussian parameters.
        points: The number P of point parameters.
        seconds: The seconds of each round but the first, in which actors start.
    """

    clients: int = 10
    rounds: int = 3
    gaussians: int = 0
    points: int = 1000
    seconds: list[float] = field(default_factory=list)

    def start(self) -> Posterior:
        """Return the posterior of the beginning."""
        generator = np.random.default_rng(0)
        return Posterior(
            generator.standard_normal(self.gaussians, np.float32),
            np.full(self.gaussians, 0.01, np.float32),
            generator.standard_normal(self.points, np.float32),
        )

    def clock(self) -> Callable[[], None]:
        """Return what is called at the beginning and at the end of each round."""
        ends: list[float] = []

        def tick() -> None:
            ends.append(time.perf_counter())
            self.seconds = [b - a for a, b in pairwise(ends[1:])]

        return tick


federation = Federation()
"""Federation that is run next; the ServerApps live in this process."""


@ours.main()
def run_ours(grid: Grid, context: Context) -> None:
    """Run the rounds under this project's Strategy."""
    averaging: type[PoolingRule] = pooling_rules.get("nwa")
    tick = federation.clock()
    nodes = discover(grid, federation.clients, timeout=300.0)

    class Ticking(RunSupport):
        def end_round(self, finished: Round) -> bool:
            tick()
            return False

    strategy = strategy_class(averaging)(
        weighting=weightings.create("train-size"),
        client_options=ClientOptions(
            configuration=resolve({}),
            partition=[np.arange(EXAMPLES)] * federation.clients,
        ),
        run=Ticking(federation=nodes),
    )
    tick()
    strategy.start(grid, posterior_to_arrays(federation.start()), num_rounds=federation.rounds + 1)


@flowers.main()
def run_flowers(grid: Grid, context: Context) -> None:
    """Run the rounds under Flower's FedAvg."""
    while len(list(grid.get_node_ids())) < federation.clients:
        time.sleep(0.1)
    tick = federation.clock()

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        tick()
        return MetricRecord({})

    FedAvg(fraction_evaluate=0.0, min_available_nodes=federation.clients).start(
        grid,
        posterior_to_arrays(federation.start()),
        num_rounds=federation.rounds + 1,
        evaluate_fn=evaluate,  # called before the first round as well
    )


@large.main()
def run_large(grid: Grid, context: Context) -> None:
    """Run the rounds that the run configuration says, and write their seconds to its file."""
    global federation
    given = context.run_config
    federation = Federation(
        clients=int(given["clients"]),
        rounds=int(given["rounds"]),
        gaussians=int(given["gaussians"]),
        points=0,
    )
    run_ours(grid, context)
    Path(str(given["output"])).write_text(json.dumps(federation.seconds), encoding="utf-8")
