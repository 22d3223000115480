"""Clients without TensorFlow that have the client half of any parts, and lose replies as told.

All but the training itself is the product's: the states that parts take up and leave, where they
lie, and what travels.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from masked_federation import add_masked_stages
from small_federation import Watched, make_grid, make_training_app

from bfl import randomness
from bfl.configuration import Configuration
from bfl.engine.serial import SerialGrid
from bfl.experiments.results.run_folder import RunFolder, run_key
from bfl.experiments.run.resume import Checkpoint, Checkpoints
from bfl.federation.client_metrics import TRAIN_LIKELIHOOD
from bfl.federation.outgoing import change_update_by
from bfl.federation.parts import Arrays, Trained, TwoSidedPart
from bfl.federation.wire import (
    ARRAYS,
    CONFIG,
    TrainTask,
    posterior_from_arrays,
    posterior_to_arrays,
    reply_content,
)
from bfl.posteriors import Posterior
from clients.masked import mask_update, read_task
from clients.node import Node, cached_configuration
from clients.state import ClientState, PartStates, client_state, read_extras
from strategies import PosteriorPooling
from strategies.server_state import Round, ServerState

STATES = TemporaryDirectory()
"""What clients keep whose run has no folder."""

SILENCE = 0.002
"""Seconds that a round waits for replies that the grid withholds."""

Fault = Literal["", "down", "lost", "refused", "late"]
"""What goes wrong with a client: it does not train; its reply is lost when it has kept its state,
or is not usable, or comes when the round is over."""

Faults = Callable[[int, int], Fault]
"""Gives what goes wrong in a round with a client, by its partition id."""

LocalTraining = Callable[[TrainTask, Posterior, Arrays, PartStates], Trained]
"""Trains what was received, given what came beside it and the states of the parts."""


def no_faults(server_round: int, partition_id: int) -> Fault:
    return ""


def outgoing(
    configuration: Configuration, task: TrainTask, learned: Posterior, received: Posterior
) -> Posterior:
    """Return what a simulated client sends of what it has learned: a lie, if it is hostile."""
    seed, labels = configuration.keys.seed, (task.server_round, task.partition_id)
    if task.partition_id < configuration.attackers:
        drawn = randomness.generator(seed, "attack", *labels)
        return configuration.attack.corrupt(learned, received, drawn)
    normals = randomness.generator(seed, "outgoing", *labels)
    return change_update_by(configuration.outgoing, learned, received, normals)


def make_part_app(
    parts: Sequence[TwoSidedPart], training: LocalTraining, faults: Faults
) -> ClientApp:
    """Return a ClientApp whose clients have the client half of some parts."""

    def train(message: Message, context: Context) -> RecordDict:
        config: Any = message.content[CONFIG]
        arrays: Any = message.content[ARRAYS]
        # A broadcast may leave out variances.
        task, received = TrainTask.from_config(config), posterior_from_arrays(arrays, 1.0)
        fault = faults(task.server_round, task.partition_id)
        if fault == "down":
            raise RuntimeError("the node is down")
        keeps_state = any(part.client_state_name for part in parts)
        folder = Path(STATES.name, f"{context.run_id}-{task.partition_id}")
        store: ClientState | None = None
        if keeps_state and task.run_folder:
            store = client_state(context, Node.of(context), task)
        elif keeps_state:
            store = ClientState(folder)
        kept_before = store.restore(task) if store else {}
        states = PartStates.of(parts, kept_before, task, received)
        beside = read_extras(message.content, parts, received)
        trained = training(task, received, beside, states)
        configuration = cached_configuration(task.configuration)
        sent = outgoing(configuration, task, trained.sent, received)
        trained = replace(trained, sent=sent)
        replies, kept = states.conclude(trained)
        if store:
            store.save(task.server_round, kept)
        if fault == "lost":
            raise RuntimeError("the connection is lost")
        if configuration.exchange.secure_sums:
            weighting = configuration.weighting
            told = read_task(message, Node.of(context), weighting, trained.examples)
            return mask_update(
                message, context, told, configuration, trained.sent, received, trained.examples
            )
        if fault == "refused":
            sent = Posterior(*(np.full_like(vector, np.nan) for vector in sent.vectors().values()))
        measured = {"num-examples": trained.examples, TRAIN_LIKELIHOOD: 1.0 + task.partition_id}
        return reply_content(sent, measured, replies)

    app = make_training_app(train, noise_anew=False)  # as simulated ones: they share a folder
    add_masked_stages(app)
    return app


class FaultyGrid(SerialGrid):
    """A grid that asks clients in any order and hands late replies over in a later round."""

    faults: Faults = staticmethod(no_faults)
    order: Callable[[Sequence[Message]], Iterable[Message]] = staticmethod(list)
    handed_late: list[tuple[int, int]]
    _late: list[Message]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        taken = list(messages)
        for message in self.order(taken):
            super().push_messages([message])
        return [message.metadata.message_id for message in taken]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        # What the round before has waited for in vain.
        overdue = getattr(self, "_late", [])
        asked = set(message_ids)
        now = [reply for reply in overdue if reply.metadata.reply_to_message_id not in asked]
        self._late = [reply for reply in overdue if reply not in now]
        self.handed_late += [(int(r.metadata.group_id), r.metadata.src_node_id - 1) for r in now]
        while replies := list(super().pull_messages(asked)):
            for reply in replies:
                server_round = int(reply.metadata.group_id or 0)
                partition_id = reply.metadata.src_node_id - 1
                if server_round and self.faults(server_round, partition_id) == "late":
                    self._late.append(reply)
                else:
                    return [*now, reply]
        return now


class KilledError(Exception):
    """Stands for whatever ends the server."""


class PartFederation:
    """A run's server and clients, which may be killed and built again from the run's folder.

    ``handed_late`` has the rounds and partition ids of replies that came when theirs was over.
    """

    def __init__(
        self,
        folder: Path,
        make_strategy: Callable[..., PosteriorPooling],
        training: LocalTraining,
        clients: int,
        initial: Posterior,
        faults: Faults = no_faults,
        order: Callable[[Sequence[Message]], Iterable[Message]] = list,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.checkpoints = Checkpoints(RunFolder(folder))
        self.finished: list[Round] = []
        self.handed_late: list[tuple[int, int]] = []
        self._make_strategy = make_strategy
        self._training = training
        self._clients = clients
        self._initial = initial
        self._faults = faults
        self._order = order

    def run(self, rounds: int, killed_after: int = 0, lost_checkpoints: int = 0) -> list[Round]:
        """Run up to a round, from the last checkpoint if there is one; return all that is done.

        The server is killed when round ``killed_after`` is saved; 0: never. The last so many
        checkpoints are lost before it begins.
        """
        saved = sorted((self.folder / "checkpoints").glob("*"))
        for path in saved[len(saved) - lost_checkpoints :]:
            path.unlink()
        checkpoint = self.checkpoints.latest()
        state = None
        if checkpoint:
            state = ServerState.from_arrays(
                checkpoint.server_round, checkpoint.posterior, checkpoint.state
            )
        begun = state.server_round if state else 0
        self.finished = [done for done in self.finished if done.number <= begun]

        def on_round(done: Round) -> None:
            self.finished.append(done)
            self.checkpoints.save(Checkpoint(done.number, done.posterior, done.state.to_arrays()))
            if done.number == killed_after:
                raise KilledError

        strategy = self._make_strategy(
            run=Watched(
                folder=str(self.folder),
                key=run_key(self.folder),
                state=state,
                on_round=on_round,
                on_warning=lambda text: None,
            )
        )
        app = make_part_app(strategy.method.parts, self._training, self._faults)
        grid = make_grid(app, self._clients, FaultyGrid)
        assert isinstance(grid, FaultyGrid)
        grid.faults, grid.order = self._faults, self._order
        grid.handed_late = self.handed_late
        first = state.posterior if state else self._initial
        strategy.start(grid, posterior_to_arrays(first), num_rounds=rounds, timeout=SILENCE)
        return self.finished
