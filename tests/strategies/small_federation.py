"""A federation without TensorFlow: clients that reply with posteriors of a few numbers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from bfl.aggregation.server import Server
from bfl.engine.flower import new_run
from bfl.engine.serial import SerialGrid
from bfl.federation.node_description import NodeDescription, code_digest
from bfl.federation.wire import (
    ARRAYS,
    CONFIG,
    METRICS,
    TrainTask,
    posterior_from_arrays,
    posterior_to_arrays,
    reply_content,
)
from bfl.posteriors import Manifest, Posterior
from strategies import PosteriorPooling
from strategies.federation import discover
from strategies.flower_clients import FlowerClients
from strategies.method import ClientOptions, Method, RunSupport
from strategies.round import pool_round, refine_round, round_request
from strategies.server_state import Round, ServerState

START = Posterior(
    np.arange(3, dtype=np.float32), np.full(3, 0.1, np.float32), np.array([-1, 1, 1], np.float32)
)

Reply = Callable[[TrainTask, Posterior], RecordDict | Error]
Train = Callable[[Message, Context], RecordDict | Error]


def shifted(task: TrainTask, received: Posterior) -> RecordDict:
    """Reply with the received posterior, its mean shifted by the partition id."""
    posterior = Posterior(
        received.mean + np.float32(task.partition_id), received.variance, received.point
    )
    return reply_content(posterior, {"num-examples": 10 * (task.partition_id + 1), "loss": 1.5})


def make_app(reply: Reply = shifted, *, code: str | None = None, **described: Any) -> ClientApp:
    """Return a ClientApp that replies as told; ``described`` overrides what nodes say."""

    def train(message: Message, context: Context) -> RecordDict | Error:
        config: Any = message.content[CONFIG]
        arrays: Any = message.content[ARRAYS]
        return reply(TrainTask.from_config(config), posterior_from_arrays(arrays))

    return make_training_app(train, code=code, **described)


def make_training_app(train: Train, *, code: str | None = None, **described: Any) -> ClientApp:
    """Return a ClientApp that is given whole messages; see ``make_app``."""
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        description: dict[str, Any] = {
            "partition_id": int(context.node_config["partition-id"]),
            "num_partitions": int(context.node_config["num-partitions"]),
            "own_examples": 0,
            "code": code or code_digest(),
            "noise_anew": context.node_config.get("simulation") is not True,
            **described,
        }
        return Message(NodeDescription(**description).to_content(), reply_to=message)

    @app.train()
    def answer(message: Message, context: Context) -> Message:
        return Message(train(message, context), reply_to=message)

    return app


def make_grid(app: ClientApp, clients: int = 4, cls: type[SerialGrid] = SerialGrid) -> SerialGrid:
    """Return a grid whose clients run an app in this process."""
    return cls(app, clients, new_run({}), {})


def make_clients(
    grid: SerialGrid,
    size: int = 4,
    *,
    warn: Callable[[str], None] = lambda text: None,
    manifest: Manifest | None = None,
    **more: Any,
) -> FlowerClients:
    """Return the clients of a grid for rounds of one's own; one usable update is enough."""
    return FlowerClients(
        grid,
        discover(grid, size, 10.0),
        ClientOptions(**{"min_clients": 1, "round_retries": 0, **more}),
        RunSupport(manifest=manifest),
        silence=10.0,
        warn=warn,
    )


def federated_round(
    method: Method,
    state: ServerState,
    clients: FlowerClients,
    seed: int,
    manifest: Manifest | None = None,
    server: Server | None = None,
) -> tuple[ServerState, Round]:
    """Run a round of any clients, whose replies need not be Flower's."""
    request = round_request(method, state, seed)
    fixed: Any = {"seed": seed, "manifest": manifest, "server": server}
    known = clients.num_examples
    if not isinstance(clients, FlowerClients):
        pooled = pool_round(request, clients.train(request), num_examples=known, **fixed)
    else:
        replies = clients.replies(request.name, clients.messages(request))
        updates = clients.updates(request, replies)
        pooled = clients.add_counts(
            request, pool_round(request, updates, num_examples=known, **fixed)
        )
    pooled = refine_round(request, pooled, **fixed)
    return pooled.state, pooled


@dataclass(kw_only=True)
class Watched(RunSupport):
    """A run that hands rounds and warnings to functions."""

    on_round: Callable[[Round], bool | None] | None = None
    on_warning: Callable[[str], None] | None = None

    def end_round(self, finished: Round) -> bool:
        return bool(self.on_round and self.on_round(finished))

    def warn(self, text: str) -> None:
        (self.on_warning or super().warn)(text)


def arguments(run: RunSupport | None = None, **given: Any) -> dict[str, Any]:
    """Return a Strategy's arguments, of which some may be given by the names of their fields."""

    def taken(cls: Any) -> dict[str, Any]:
        return {each.name: given.pop(each.name) for each in fields(cls) if each.name in given}

    options, lent = taken(ClientOptions), taken(Watched)
    given |= {"client_options": ClientOptions(**options)} if options else {}
    given |= {"run": replace(run or Watched(), **lent)}
    return given


def play(
    reply: Reply = shifted,
    *,
    start: Posterior = START,
    clients: int = 4,
    rounds: int = 1,
    described: Mapping[str, Any] | None = None,
    **settings: Any,
) -> tuple[Posterior, list[Round], list[str]]:
    """Return the posterior, the rounds and the warnings of clients that reply as told.

    ``described`` is what nodes say otherwise of themselves, ``settings`` are the Strategy's
    arguments; by default it pools weighted sums of equal clients.
    """
    seen: list[Round] = []
    told: list[str] = []
    asks = {"partition": [None] * clients} if described else {}
    settings = {"rule": "ws", "weighting": "equal", **asks, **settings}
    strategy = PosteriorPooling(
        **arguments(on_round=seen.append, on_warning=told.append, **settings)
    )
    grid = make_grid(make_app(reply, **(described or {})), clients)
    result = strategy.start(grid, posterior_to_arrays(start), num_rounds=rounds)
    return posterior_from_arrays(result.arrays), seen, told


def bare_reply(arrays: dict[str, Any], metrics: dict[str, Any]) -> RecordDict:
    """Return a reply with any arrays and metrics, also wrong ones."""
    record = ArrayRecord({name: Array(np.asarray(value)) for name, value in arrays.items()})
    return RecordDict({ARRAYS: record, METRICS: MetricRecord(metrics)})
