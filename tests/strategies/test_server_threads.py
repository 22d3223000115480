"""The threads of the server's network where its bits enter the result, and where they do not."""

from typing import Any

import pytest

import bfl.keras
from bfl.configuration import resolve
from bfl.engine.resources import cpus_of_this_process
from bfl.errors import ConfigurationError
from strategies.application import run_context
from strategies.application.run_context import start_tensorflow

DECIDES: dict[str, dict[str, Any]] = {
    "distillation": {"strategy": "fedbe"},
    "v-distillation": {"strategy": "v-distillation"},
    "weights by accuracy": {"strategy": "abavg", "server-data": "held-back"},
    "validation": {"server-data": "held-back"},
    "pre-training": {"pretrain-examples": 60},
}
IDLE: dict[str, dict[str, Any]] = {
    "averaging": {"strategy": "fedavg"},
    "images that nobody looks at": {"server-data": "held-back", "server-labels": False},
    "an ensemble that is watched": {"strategy": "fedavg", "predictive": "ensemble"},
}


class Process:
    """TensorFlow's threads in a process that may use three CPUs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, begun: int | None = None) -> None:
        self.threads = begun
        self.operations: int | None = None
        monkeypatch.setattr(bfl.keras, "configure", self.configure)
        monkeypatch.setattr(bfl.keras, "configured_threads", lambda: self.threads)
        monkeypatch.setattr(run_context, "cpus_of_this_process", lambda: 3)

    def configure(self, threads: int, operations: int = 1) -> None:
        self.threads = self.threads or threads
        self.operations = self.operations or max(operations, threads)


@pytest.mark.parametrize("what", DECIDES)
@pytest.mark.parametrize("threads", [1, 2])
def test_what_enters_the_result_has_the_configured_threads(
    what: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default one, whatever the machine has."""
    given = {} if threads == 1 else {"server-threads": threads}
    process = Process(monkeypatch)
    start_tensorflow(resolve({**DECIDES[what], **given}), None)
    assert (process.threads, process.operations) == (threads, 3)


@pytest.mark.parametrize("what", IDLE)
def test_what_does_not_may_use_the_machine(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch)
    start_tensorflow(resolve(IDLE[what]), 1)
    assert process.threads == 3


def test_a_process_with_other_threads_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    Process(monkeypatch, begun=2)
    with pytest.raises(ConfigurationError, match=r"computes with 2 threads.*server-threads=2"):
        start_tensorflow(resolve(DECIDES["distillation"]), None)


def test_after_a_run_with_all_cpus_only_the_messages_ways_out_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    averaging, distils = resolve(IDLE["averaging"]), DECIDES["distillation"]
    Process(monkeypatch)
    start_tensorflow(averaging, None)
    with pytest.raises(ConfigurationError, match=r"own, BFL_CPUS=1 in .* or server-threads=3"):
        start_tensorflow(resolve(distils), None)
    start_tensorflow(resolve({**distils, "server-threads": 3}), None)
    monkeypatch.undo()
    process = Process(monkeypatch)
    monkeypatch.setenv("BFL_CPUS", "1")
    monkeypatch.setattr(run_context, "cpus_of_this_process", cpus_of_this_process)
    start_tensorflow(averaging, None)
    start_tensorflow(resolve(distils), None)
    assert process.threads == 1


def test_clients_of_the_same_process_have_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow has one number of them: neither the server nor the clients get the other's."""
    process = Process(monkeypatch)
    with pytest.raises(ConfigurationError, match=r"clients, which have 2.*server-threads=2"):
        start_tensorflow(resolve(DECIDES["distillation"]), 2)
    assert process.threads is None
    start_tensorflow(resolve({**DECIDES["distillation"], "server-threads": 2}), 2)
    assert process.threads == 2


def test_they_stand_in_the_record_and_are_not_sent() -> None:
    configuration = resolve({**DECIDES["distillation"], "server-threads": 2})
    assert configuration.values["server-threads"] == 2
    assert "server-threads" not in configuration.for_clients()
