"""A client's process: what it loads once, and what the guard lets out."""

import json
import time
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict

from bfl.configuration import resolve
from bfl.engine.flower import new_run
from bfl.errors import (
    BflError,
    ConfigurationError,
    DataError,
    LostStateError,
    SharedFolderError,
    public,
)
from bfl.federation.wire import RUN_CANNOT_GO_ON
from clients.client_app import deadline, reports_errors
from clients.node import Node, cached_configuration, start_tensorflow


def text(**changes):
    values = {"model": "resnet8", "dataset": "digits"}
    return json.dumps({**values, **{k.replace("_", "-"): v for k, v in changes.items()}})


def test_a_configuration_is_resolved_once_whatever_its_data_and_nonsense_is_not():
    first = cached_configuration(text())
    assert cached_configuration(text()) is first
    assert first.values == resolve(json.loads(text())).values
    assert cached_configuration(text(rounds=3)).keys.rounds == 3
    elsewhere = cached_configuration(text(dataset="npz:elsewhere.npz"))
    assert elsewhere.keys.dataset == "npz:elsewhere.npz"
    with pytest.raises(ConfigurationError, match="modl"):
        cached_configuration(text(modl="resnet8"))


def test_tensorflow_takes_the_threads_of_this_process(tensorflow, monkeypatch):
    from bfl.keras import configured_threads

    assert configured_threads() == 1
    # A second call changes nothing: TensorFlow has started.
    monkeypatch.setenv("BFL_CPUS", "5")
    start_tensorflow()
    assert configured_threads() == 1
    assert tensorflow.config.threading.get_intra_op_parallelism_threads() == 1
    assert tensorflow.config.threading.get_inter_op_parallelism_threads() == 1


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


@pytest.mark.parametrize("kind", [KeyError, DataError, LostStateError])
def test_what_an_error_says_of_a_real_clients_data_stays_there(
    kind: type[Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    def work(message: Message, context: Context) -> Message:
        raise kind("/home/jane/images.npz: label 'HIV positive'") from ValueError("a\nb\x1b[2J")

    reason = str(ask(work).error.reason)
    assert reason == f"{kind.__name__} (its message is in the client's own log)"
    logged = capsys.readouterr().err
    assert "/home/jane/images.npz: label 'HIV positive'" in logged
    assert "    | b\\x1b[2J" in logged
    assert "/home/jane/images.npz: label 'HIV positive'" in str(
        ask(work, simulation=True).error.reason
    )


@pytest.mark.parametrize("kind", [DataError, LostStateError, SharedFolderError])
def test_a_public_message_comes_alone_and_a_lost_state_says_that_the_run_cannot_go_on(
    kind: type[BflError],
) -> None:
    def work(message: Message, context: Context) -> Message:
        raise public(kind("not here"))

    error = ask(work).error
    lost = kind is not DataError
    assert (error.code == RUN_CANNOT_GO_ON) == lost
    assert error.reason == ("not here" if lost else "DataError: not here")


def test_outside_of_an_actor_nothing_is_ended() -> None:
    begun = time.monotonic()
    with deadline(Node(partition_id=0, num_partitions=1), 0.0):
        time.sleep(0.05)
    assert time.monotonic() - begun >= 0.05  # and this process is still here to say so
