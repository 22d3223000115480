import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict

from bfl.engine.flower import new_run
from bfl.errors import (
    BflError,
    ConfigurationError,
    DataError,
    LostStateError,
    SharedFolderError,
    nearest,
    public,
)
from bfl.federation.wire import RUN_CANNOT_GO_ON
from clients.process import deadline, reports_errors

ROOT = Path(__file__).resolve().parent.parent.parent


def ask(work: Any, **node_config: bool) -> Message:
    context = Context(new_run({}).run_id, 1, dict(node_config), RecordDict(), {})
    message = Message(RecordDict(), 1, "train")
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
    """Where it happened and its kind are sent, of what led to it as well; no path of the node."""

    def work(message: Message, context: Context) -> Message:
        patient: Any = "Jane Doe"
        try:
            nearest(patient, 7)  # type: ignore[arg-type]
        except TypeError as error:
            raise KeyError(patient) from error
        return message

    reason = str(ask(work).error.reason)
    assert "Jane Doe" not in reason
    assert str(ROOT) not in reason
    assert sys.prefix not in reason
    # Code that everybody has is quoted, a file of the node's own is named.
    assert re.search(r"bfl/errors\.py, line \d+, in nearest: lowered = ", reason)
    assert re.search(r"  test_guard\.py, line \d+, in work\n", reason)
    assert "KeyError (its message is in the client's own log)" in reason
    assert "TypeError (its message is in the client's own log)" in reason
    assert "KeyError: 'Jane Doe'" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [DataError, ConfigurationError, LostStateError])
def test_what_our_own_errors_say_of_a_real_client_stays_there(
    kind: type[BflError], capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as the label of an image, or where its archive is."""

    def work(message: Message, context: Context) -> Message:
        raise kind("/home/jane/images.npz: label 'HIV positive'")

    reason = str(ask(work).error.reason)
    assert "jane" not in reason
    assert "HIV" not in reason
    assert reason.endswith(f"{kind.__name__} (its message is in the client's own log)\n")
    assert "/home/jane/images.npz: label 'HIV positive'" in capsys.readouterr().err
    assert "/home/jane/images.npz: label 'HIV positive'" in str(
        ask(work, simulation=True).error.reason
    )


def test_a_public_message_comes_without_a_traceback() -> None:
    def work(message: Message, context: Context) -> Message:
        raise public(DataError("no such archive"))

    assert ask(work).error.reason == "DataError: no such archive"


@pytest.mark.parametrize("kind", [LostStateError, SharedFolderError])
def test_a_client_without_its_state_says_that_the_run_cannot_go_on(kind: type[BflError]) -> None:
    def work(message: Message, context: Context) -> Message:
        raise public(kind("not here"))

    assert ask(work).error.code == RUN_CANNOT_GO_ON
    assert ask(work).error.reason == "not here"


def test_outside_of_an_actor_nothing_is_ended() -> None:
    begun = time.monotonic()
    with deadline(0.0):
        time.sleep(0.05)
    assert time.monotonic() - begun >= 0.05  # and this process is still here to say so
