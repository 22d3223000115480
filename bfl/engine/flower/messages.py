"""Identities of runs and messages, codes of errors, and Flower's log."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass


NO_REPLY = 0
"""Flower's ErrorCode.UNKNOWN."""


CLIENT_RAISED = 2
"""Flower's ErrorCode.CLIENT_APP_RAISED_EXCEPTION."""


log = logging.getLogger("flwr").log
"""Flower's log."""


def new_run(overrides: Mapping[str, Any]) -> Any:
    """Return Flower's description of a new run, and make it this process's run.

    Flower's messages take their sender and run from what is set here.
    """
    from flwr.common.constant import RUN_ID_NUM_BYTES, SUPERLINK_NODE_ID, TASK_ID_NUM_BYTES
    from flwr.supercore.constant import NOOP_FEDERATION_ID
    from flwr.supercore.run import Run
    from flwr.supercore.task_identity import TaskIdentity

    run = Run.create_empty(run_id=secrets.randbits(8 * RUN_ID_NUM_BYTES))
    run.primary_task_id = secrets.randbits(8 * TASK_ID_NUM_BYTES)
    run.federation_id = NOOP_FEDERATION_ID
    run.override_config = dict(overrides)
    TaskIdentity.task_id = 1
    TaskIdentity.run_id = run.run_id
    TaskIdentity.node_id = SUPERLINK_NODE_ID
    return run


def new_context(run_id: int, values: Mapping[str, Any]) -> Any:
    """Return the context of a ServerApp."""
    from flwr.app import Context, RecordDict

    return Context(
        run_id=run_id, node_id=0, node_config={}, state=RecordDict(), run_config=dict(values)
    )


def set_message_id(message: Any, message_id: str) -> None:
    """Give a message its id, as Flower's grids do: its metadata has no setter for it."""
    message.metadata.__dict__["_message_id"] = message_id
