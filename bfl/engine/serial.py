"""A grid that calls the ClientApp in the calling process: no Ray, plain tracebacks, same bits."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Set
from itertools import count
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from bfl.engine.flower import CLIENT_RAISED
from bfl.engine.flower.replies import set_message_id
from bfl.engine.run import EngineRun


class SerialGrid(Grid):
    """A grid whose nodes live in the calling process; one message is answered in each pull.

    Args:
        num_supernodes: The number of nodes; node i plays partition i and keeps a context.
        run: Flower's description of the run.
        engine_run: The run; by default a new one.

    Raises:
        RunError: When messages are pushed or pulled and the run has been ended.
    """

    pull_interval = 0.0
    """Seconds to wait between two pulls: nothing happens in between."""

    def __init__(
        self,
        client_app: ClientApp,
        num_supernodes: int,
        run: Any,
        run_config: dict[str, Any],
        engine_run: EngineRun | None = None,
    ) -> None:
        self.engine_run = engine_run or EngineRun()
        self._client_app = client_app
        self._run = run
        self._waiting: dict[str, Message] = {}
        self._ids = count()
        # Node ids begin at 1: 0 is the SuperLink's.
        self._contexts = {
            partition_id + 1: Context(
                run_id=run.run_id,
                node_id=partition_id + 1,
                node_config={
                    "partition-id": partition_id,
                    "num-partitions": num_supernodes,
                    "simulation": True,
                },
                state=RecordDict(),
                run_config=dict(run_config),
            )
            for partition_id in range(num_supernodes)
        }

    def set_run(self, run: Any) -> None:
        """Set Flower's description of the run."""
        self._run = run

    @property
    def run(self) -> Any:
        """Flower's description of the run."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a message to a node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of all nodes."""
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Take messages in; return their ids."""
        self.engine_run.raise_if_ended()
        ids = []
        for message in messages:
            message_id = str(next(self._ids))
            set_message_id(message, message_id)
            self._waiting[message_id] = message
            ids.append(message_id)
        return ids

    def pull_messages(
        self,
        message_ids: Iterable[str] | None = None,
        *,
        reply_to_message_ids: Iterable[str] | None = None,
    ) -> Iterable[Message]:
        """Have the first of these messages answered, or of all; return the reply.

        Flower calls the ids ``message_ids`` up to 1.42, and ``reply_to_message_ids`` after it.
        """
        self.engine_run.raise_if_ended()
        given = message_ids if reply_to_message_ids is None else reply_to_message_ids
        ids = given if isinstance(given, Set) or given is None else set(given)
        first = next((i for i in self._waiting if ids is None or i in ids), None)
        return [] if first is None else [self._answer(self._waiting.pop(first))]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Have messages answered and return the replies; nothing is ever late."""
        ids = set(self.push_messages(messages))
        return [reply for _ in range(len(ids)) for reply in self.pull_messages(ids)]

    def _answer(self, message: Message) -> Message:
        try:
            return self._client_app(message, self._contexts[message.metadata.dst_node_id])
        except Exception:
            # As in Flower's own engines, a client that raises is a reply with an error.
            error = Error(code=CLIENT_RAISED, reason=traceback.format_exc())
            return Message(error, reply_to=message)
