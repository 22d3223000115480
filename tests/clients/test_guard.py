import time
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict

from bfl.engine.flower import new_run
from bfl.errors import DataError, LostStateError, SharedFolderError
from bfl.federation.wire import RUN_CANNOT_GO_ON
from clients.guard import deadline, reports_errors


def ask(work: Any, **node_config: bool) -> Message:
    run = new_run({})
    message = Message(RecordDict(), 1, "train")
    context = Context(
        run_id=run.run_id,
        node_id=1,
        node_config=dict(node_config),
        state=RecordDict(),
        run_config={},
    )
    return reports_errors(work)(message, context)


def test_an_error_reaches_the_server_with_its_traceback() -> None:
    def work(message: Message, context: Context) -> Message:
        return np.zeros(3)[5]  # type: ignore[no-any-return]

    reply = ask(work, simulation=True)
    assert reply.has_error()
    assert "IndexError: index 5" in str(reply.error.reason)
    assert "np.zeros(3)[5]" in str(reply.error.reason)


def test_what_an_error_says_of_a_real_clients_data_stays_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where it happened and its kind are sent, of what led to it as well."""

    def work(message: Message, context: Context) -> Message:
        patient = "Jane Doe"
        try:
            int(patient)
        except ValueError as error:
            raise KeyError(patient) from error
        return message

    reason = str(ask(work).error.reason)
    assert "Jane Doe" not in reason
    assert "int(patient)" in reason
    assert "KeyError" in reason
    assert "ValueError" in reason
    assert "invalid literal for int() with base 10: 'Jane Doe'" in capsys.readouterr().err


def test_an_error_meant_for_people_comes_without_a_traceback() -> None:
    def work(message: Message, context: Context) -> Message:
        raise DataError("no such archive")

    assert ask(work).error.reason == "DataError: no such archive"


@pytest.mark.parametrize("kind", [LostStateError, SharedFolderError])
def test_a_client_without_its_state_says_that_the_run_cannot_go_on(kind: type[Exception]) -> None:
    def work(message: Message, context: Context) -> Message:
        raise kind("not here")

    assert ask(work).error.code == RUN_CANNOT_GO_ON
    assert ask(work).error.reason == "not here"


def test_outside_of_an_actor_nothing_is_ended() -> None:
    begun = time.monotonic()
    with deadline(0.0):
        time.sleep(0.05)
    assert time.monotonic() - begun >= 0.05  # and this process is still here to say so
