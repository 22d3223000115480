"""Clients without TensorFlow that send masked vectors, by the product's own client half."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from small_federation import arguments, make_grid, make_training_app

from bfl.configuration import resolve
from bfl.federation.secure_aggregation.messages import ADVERTISE_KEYS, CONFIRM, SHARE_KEYS, UNMASK
from bfl.federation.wire import (
    ARRAYS,
    CONFIG,
    TrainTask,
    posterior_from_arrays,
    posterior_to_arrays,
    reply_content,
)
from bfl.posteriors import Posterior
from clients.client_app import reports_errors
from clients.masked import advertise_keys, confirm, mask_update, read_task, share_keys, unmask
from clients.node import Node
from strategies import PosteriorPooling
from strategies.server_state import Round

SIZES = (10, 20, 30, 15, 25, 40)
START = Posterior(
    np.linspace(-1, 1, 50).astype(np.float32),
    np.linspace(0.01, 0.2, 50).astype(np.float32),
    np.arange(3, dtype=np.float32),
)

Fault = Callable[[str, int, int], bool]
Work = Callable[[Message, Context], Message]


def no_fault(stage: str, client: int, server_round: int) -> bool:
    return False


def trained(task: TrainTask, received: Posterior) -> Posterior:
    """Return what a client makes of what it has received."""
    generator = np.random.default_rng((task.server_round, task.partition_id))
    return Posterior(
        received.mean + generator.normal(0, 0.1, received.size).astype(np.float32),
        received.variance * generator.uniform(0.3, 1.0, received.size).astype(np.float32),
        received.point + np.float32(task.partition_id),
    )


def add_masked_stages(app: ClientApp, around: Callable[[str, Work], Work] | None = None) -> None:
    """Give an app what answers the messages beside those that ask to train, or other answers."""
    for kind, answer in (
        (ADVERTISE_KEYS, advertise_keys),
        (SHARE_KEYS, share_keys),
        (CONFIRM, confirm),
        (UNMASK, unmask),
    ):
        app.train(kind)(reports_errors(around(kind, answer) if around else answer))


class MaskedNodes:
    """The ClientApp of all nodes, which fail in a stage and a round as ``fault`` says.

    ``stages`` has what each client has been asked, ``sent`` what it has sent last in training.
    """

    def __init__(
        self,
        training: Callable[[TrainTask, Posterior], Posterior] = trained,
        fault: Fault = no_fault,
        sizes: tuple[int, ...] = SIZES,
    ) -> None:
        self.stages: list[tuple[str, int]] = []
        self.sent: dict[int, Any] = {}
        self._training = training
        self._fault = fault
        self.sizes = sizes

    def app(self) -> ClientApp:
        """Return the app."""
        app = make_training_app(self._train)
        add_masked_stages(app, self._stage)
        return app

    def _note(self, kind: str, message: Message, context: Context) -> None:
        client = int(context.node_config["partition-id"])
        self.stages.append((kind, client))
        if self._fault(kind, client, int(message.metadata.group_id)):
            raise RuntimeError(f"{kind}: the node is down")

    def _stage(self, kind: str, answer: Work) -> Work:
        def work(message: Message, context: Context) -> Message:
            self._note(kind, message, context)
            return answer(message, context)

        return work

    def _train(self, message: Message, context: Context) -> Any:
        self._note("train", message, context)
        config: Any = message.content[CONFIG]
        arrays: Any = message.content[ARRAYS]
        task = TrainTask.from_config(config)
        configuration = resolve(json.loads(task.configuration))
        received = posterior_from_arrays(arrays)
        count = self.sizes[task.partition_id]
        if configuration.exchange.secure_sums:
            told = read_task(message, Node.of(context), configuration.weighting, count)
            update = self._training(task, received)
            content = mask_update(message, context, told, configuration, update, received, count)
        else:
            posterior = self._training(task, received)
            content = reply_content(posterior, {"num-examples": count})
        self.sent[task.partition_id] = content
        return content


MASKED = {"exchange": "masked"}


class Run:
    """A run of some rounds over clients in memory, which are sent the configuration given.

    ``warnings`` gets the warnings also of a run that fails; ``more`` is for the Strategy.
    """

    def __init__(
        self,
        given: dict[str, Any],
        rounds: int = 2,
        nodes: MaskedNodes | None = None,
        start: Posterior = START,
        node_configs: Sequence[dict[str, Any]] = (),
        warnings: list[str] | None = None,
        **more: Any,
    ) -> None:
        configuration = resolve({"dataset": "digits", **given})
        self.nodes = nodes or MaskedNodes()
        self.rounds: list[Round] = []
        self.warnings: list[str] = [] if warnings is None else warnings
        sizes = self.nodes.sizes
        grid = make_grid(self.nodes.app(), len(sizes))
        for context, config in zip(grid._contexts.values(), node_configs, strict=False):
            context.node_config.update(config)
        method = {name: getattr(configuration, name) for name in ("weighting", "exchange")}
        strategy = PosteriorPooling(
            **arguments(
                rule=configuration.pooling,
                configuration=configuration,
                partition=[np.arange(size) for size in sizes],
                on_round=self.rounds.append,
                on_warning=self.warnings.append,
                **{**method, **more},
            )
        )
        result = strategy.start(grid, posterior_to_arrays(start), num_rounds=rounds, timeout=1.0)
        self.posterior = posterior_from_arrays(result.arrays)

    def close_to(self, other: Run) -> None:
        """Raise unless the final posteriors are as close as is promised."""
        mine, its = self.posterior, other.posterior
        assert (np.abs(mine.mean - its.mean) < 0.01 * np.sqrt(its.variance)).all()
        np.testing.assert_allclose(mine.variance, its.variance, rtol=1e-3)
        np.testing.assert_allclose(mine.point, its.point, rtol=1e-6)
