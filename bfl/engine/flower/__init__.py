"""The one door to Flower's private parts, and what runs a Flower app through it.

The public ``run_simulation`` gives an app no run configuration; what Flower's own command used
until 1.26 does. All that this project takes from Flower outside ``flwr.app``, ``flwr.serverapp``
and ``flwr.clientapp`` is taken in this folder; ``tests/engine/test_private_parts.py`` names each
part, and the next release fails there first.

Here are Flower's grid in memory, for a run that can be ended, its runs, errors and log; ``replies``
has its messages, and ``app`` and ``simulation`` make runs.
"""

from __future__ import annotations

import importlib
import logging
import secrets
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

if TYPE_CHECKING:
    from bfl.engine.run import EngineRun

NO_REPLY, CLIENT_RAISED = 0, 2
"""Flower's ErrorCode.UNKNOWN and ErrorCode.CLIENT_APP_RAISED_EXCEPTION."""

HAND_OUT_INTERVAL = 0.01
"""Seconds between looks for messages to hand out."""

log = logging.getLogger("flwr").log
"""Flower's log."""


def is_simulation(grid: Any) -> bool:
    """Return whether the nodes of a grid are simulated, by Flower's engine or by the serial one."""
    return any(each.__name__ in ("InMemoryGrid", "SerialGrid") for each in type(grid).__mro__)


def new_run(overrides: Mapping[str, Any]) -> Any:
    """Return Flower's description of a new run, and make it this process's run.

    Flower's messages take their sender and run from what is set here.
    """
    from flwr.common.constant import SUPERLINK_NODE_ID
    from flwr.supercore.constant import NOOP_FEDERATION_ID
    from flwr.supercore.run import Run
    from flwr.supercore.task_identity import TaskIdentity

    run = Run.create_empty(run_id=secrets.randbits(64))
    run.primary_task_id = secrets.randbits(64)
    run.federation_id = NOOP_FEDERATION_ID
    run.override_config = dict(overrides)
    TaskIdentity.task_id = 1
    TaskIdentity.run_id = run.run_id
    TaskIdentity.node_id = SUPERLINK_NODE_ID
    return run


def new_context(run_id: int, values: Mapping[str, Any]) -> Any:
    """Return the context of a ServerApp."""
    from flwr.app import Context, RecordDict

    return Context(run_id, 0, {}, state=RecordDict(), run_config=dict(values))


def grid_of(run: EngineRun) -> AbstractContextManager[Any]:
    """Have Flower's simulation give its ServerApp a grid that raises when the run has ended."""
    from flwr.superlink.grid import InMemoryGrid

    # The package has a function of the module's name.
    simulation: Any = importlib.import_module("flwr.simulation.run_simulation")

    class RunGrid(InMemoryGrid):
        engine_run = run

        def get_node_ids(self) -> Iterable[int]:
            run.raise_if_ended()
            return super().get_node_ids()

        def push_messages(self, messages: Iterable[Any]) -> Iterable[str]:
            run.raise_if_ended()
            return super().push_messages(messages)

        def pull_messages(self, *ids: Any, **named_ids: Any) -> Iterable[Any]:
            replies = super().pull_messages(*ids, **named_ids)
            # Those of a run that has been ended may be of clients that were ended with it.
            run.raise_if_ended()
            return replies

    return patch.object(simulation, "InMemoryGrid", RunGrid)


def hand_out_at_once() -> AbstractContextManager[Any]:
    """Have Flower's engine hand out a round's messages in time proportional to their number.

    Its own loop goes through all unanswered messages for each node, under the lock that everything
    else needs: from some hundred clients on the actors wait for it.
    """
    from flwr.server.superlink.fleet.vce import vce_api

    return patch.object(vce_api, "add_messages_to_queue", hand_out)


def hand_out(state: Any, queue: Any, nodes_mapping: Mapping[int, int], f_stop: Any) -> None:
    """Put new messages into the queue of the engine's workers until the run stops."""
    while not f_stop.wait(HAND_OUT_INTERVAL):
        for message in new_messages(state):
            queue.put(message)


def new_messages(state: Any) -> list[Any]:
    """Return the messages that have not been handed out, and mark them as Flower does."""
    with state.lock:
        # All are handed out at once, so the new ones are at the end.
        newest_first = reversed(state.message_ins_store.values())
        new = list(takewhile(lambda m: not m.metadata.delivered_at, newest_first))[::-1]
        for message in new:
            message.metadata.delivered_at = datetime.now(UTC).isoformat()
    return new
