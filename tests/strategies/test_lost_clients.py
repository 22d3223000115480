"""SuperNodes that have lost what their clients kept: whether a run can still do without them."""

import pytest
from flwr.app import Error, RecordDict
from small_federation import play, shifted

import strategies.messaging
from bfl.errors import LostStateError, RunError
from bfl.federation.wire import RUN_CANNOT_GO_ON, TrainTask
from bfl.posteriors import Posterior


def ended_by(codes: dict[int, int], min_clients: float) -> type[BaseException] | None:
    """Return how a run ends of which some clients fail with these codes."""

    def reply(task: TrainTask, received: Posterior) -> RecordDict | Error:
        code = codes.get(task.partition_id)
        return Error(code=code, reason="gone") if code else shifted(task, received)

    try:
        play(reply, round_retries=0, min_clients=min_clients)
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
    assert ended_by(codes, min_clients) is ended
