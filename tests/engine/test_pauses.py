"""How often a SuperNode looks for work, and Flower's processes for what is on its way."""

import inspect
import subprocess
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import httpx
import pytest
from flwr.supercore import sql_mixin
from flwr.supercore.object_store import object_store_factory
from flwr.supercore.object_store.sql_object_store import SqlObjectStore
from flwr.superlink import cli
from flwr.supernode import start_client_internal
from sqlalchemy import text

from bfl.deployment.proxy import UNKNOWN
from bfl.engine.flower import flower_process, warm
from bfl.engine.flower.flower_process import Pauses
from bfl.engine.flower.object_store import ObjectStore

# Flower's SuperNode looks for a message, and then for the reply to it.
STAND_IN = """
import runpy, sys, types
command = types.ModuleType("command")
def flower_supernode():
    from flwr.supercore.inflatable import inflatable_utils
    from flwr.supernode import start_client_internal
    backoff = inflatable_utils.pull_objects.__kwdefaults__["initial_backoff"]
    print(type(start_client_internal.time).__name__, backoff, sys.argv[1:])
command.flower_supernode = flower_supernode
sys.modules["flwr.supernode.cli.flower_supernode"] = command
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Clock:
    """A clock that goes on while one sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 3))
        self.now += seconds

    def monotonic(self) -> float:
        return self.now


def test_a_node_looks_soon_after_work_and_less_often_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(flower_process, "time", clock)
    node = Pauses()
    for _ in range(200):
        node.sleep(3)
    assert clock.slept[:3] == [0.25, 0.25, 0.25]
    assert clock.slept == sorted(clock.slept)
    assert clock.slept[-1] == 3
    # It has a message, and waits for the reply of its own process.
    node.sleep(0.5)
    node.sleep(3)
    assert clock.slept[-2:] == [0.05, 0.25]


@pytest.mark.parametrize(
    ("status", "body", "refusals", "slept"),
    [
        (412, b"{}", 3, 15),  # killed and started again: it is let in a little later
        (412, b"{}", 10**6, 90),
        (412, UNKNOWN, 10**6, 0),  # its key is not in the list, which the proxy says at once
        (401, b"{}", 10**6, 0),
    ],
)
def test_a_client_that_is_started_again_asks_to_be_let_in_for_a_while(
    status: int,
    body: bytes,
    refusals: int,
    slept: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock, calls = Clock(), []
    monkeypatch.setattr(flower_process, "time", clock)

    def activate(request: str) -> str:
        calls.append(request)
        answer = httpx.Response(
            status if len(calls) <= refusals else 200,
            content=body,
            request=httpx.Request("POST", "https://localhost"),
        )
        answer.raise_for_status()
        return "node"

    outcome: Any = nullcontext() if refusals < 10 else pytest.raises(httpx.HTTPStatusError)
    call = flower_process.tell_refusal(flower_process.wait_to_be_let_in(activate))
    with outcome:
        assert call("request") == "node"
    assert sum(clock.slept) == slept
    said = capsys.readouterr().err
    assert (flower_process.LET_IN in said) == (refusals < 10)
    assert ("client.key" in said) == (slept == 0)  # whose key is refused is told which


def test_flowers_loop_waits_so_long_for_both() -> None:
    """What the pauses tell apart are these two numbers."""
    source = inspect.getsource(start_client_internal)
    assert source.count("time.sleep(") == 3
    assert source.count("time.sleep(3)") == 1
    assert source.count("time.sleep(0.5)") == 2


def test_the_node_and_the_worker_have_the_short_ones(tmp_path: Path) -> None:
    program, path, *words = warm.flower_command("node")
    done = subprocess.run(
        [program, path, "-c", STAND_IN, *words, "--superlink", "here"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert done.stdout == f"Pauses {flower_process.PULL_BACKOFF} ['--superlink', 'here']\n"


def test_a_superlinks_calls_wait_longer_while_others_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int] = []

    def connect() -> None:
        store = SqlObjectStore(str(tmp_path / f"{len(waits)}.db"))
        store.initialize()
        with store.session() as session:
            waits.append(int(session.execute(text("PRAGMA busy_timeout")).scalar_one()))

    monkeypatch.setattr(sql_mixin, "SQLITE_PRAGMAS", sql_mixin.SQLITE_PRAGMAS)  # is put back
    monkeypatch.setattr(cli, "flower_superlink", connect)
    monkeypatch.setattr(object_store_factory, "SqlObjectStore", SqlObjectStore)  # as well
    connect()
    flower_process.run_superlink()
    assert waits == [5_000, flower_process.BUSY_TIMEOUT * 1_000]
    assert object_store_factory.SqlObjectStore is ObjectStore
