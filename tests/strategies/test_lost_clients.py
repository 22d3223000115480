"""SuperNodes that have lost what their clients kept: whether a run can still do without them."""

from typing import Any

import numpy as np
import pytest
from deployment_grid import DeploymentGrid
from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp
from small_federation import shifted

import strategies
import strategies.messaging
from bfl.errors import LostStateError, RunError
from bfl.federation.node_description import NodeDescription
from bfl.federation.wire import (
    ARRAYS,
    CONFIG,
    RUN_CANNOT_GO_ON,
    TrainTask,
    posterior_from_arrays,
    posterior_to_arrays,
)
from bfl.posteriors import Posterior

K = 4
START = Posterior(np.arange(3, dtype=np.float32), np.full(3, 0.1, np.float32))


def ended_by(codes: dict[int, int], **settings: Any) -> type[BaseException] | None:
    """Return how a run ends of which some clients fail with these codes."""
    app = ClientApp()

    @app.query()
    def describe(message: Message, context: Context) -> Message:
        said = NodeDescription(int(context.node_config["partition-id"]), K, 0, "")
        return Message(said.to_content(), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        config: Any = message.content[CONFIG]
        arrays: Any = message.content[ARRAYS]
        task = TrainTask.from_config(config)
        if code := codes.get(task.partition_id):
            return Message(Error(code=code, reason="gone"), reply_to=message)
        return Message(shifted(task, posterior_from_arrays(arrays)), reply_to=message)

    strategy = strategies.PosteriorPooling(
        rule="ws", weighting="equal", round_retries=0, on_warning=lambda _: None, **settings
    )
    try:
        strategy.start(DeploymentGrid(app, range(K), K), posterior_to_arrays(START), num_rounds=1)
    except RunError as error:
        return type(error)
    return None


@pytest.mark.parametrize(
    ("codes", "min_clients", "ended"),
    [
        ({1: RUN_CANNOT_GO_ON}, 3.0, None),
        ({1: RUN_CANNOT_GO_ON}, 4.0, LostStateError),
        ({1: 2}, 4.0, RunError),
        # The two that only failed may come back, and with them there are enough.
        ({0: 2, 1: RUN_CANNOT_GO_ON, 2: 2}, 3.0, RunError),
        ({0: RUN_CANNOT_GO_ON, 1: RUN_CANNOT_GO_ON, 2: 2}, 3.0, LostStateError),
    ],
)
def test_a_run_that_cannot_do_without_what_is_lost_says_so(
    codes: dict[int, int],
    min_clients: float,
    ended: type[BaseException] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Of a simulation one is enough to end it.
    monkeypatch.setattr(strategies.messaging, "is_simulation", lambda grid: False)
    assert ended_by(codes, min_clients=min_clients) is ended
