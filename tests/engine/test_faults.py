"""Faults made on purpose: clients that raise, die or hang; an engine that dies."""

import io
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from bfl.commands.flower_simulation import main
from bfl.configuration.settings import parse_pairs
from bfl.engine.flower.app import FlowerApp, run_serially
from bfl.experiments.results.run_folder import RunFolder

ROOT = Path(__file__).resolve().parent.parent.parent

CLIENT = '''
"""The project's ClientApp, with faults: BFL_FAULTS is a list of KIND:PARTITION:ROUND:TIMES."""

import os
import signal
import time
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from bfl.federation.wire import CONFIG
from clients.client_app import deadline, describe, reports_errors
from clients.client_app import train as honest_train
from clients.node import Node

app = ClientApp()
app.query()(describe)


def due(kind: str, partition: int, server_round: int, times: int) -> bool:
    """Whether the fault has been made fewer than ``times`` times; counted in files, by all."""
    folder = Path(os.environ["BFL_FAULT_FOLDER"])
    for number in range(times):
        try:
            (folder / f"{kind}-{partition}-{server_round}-{number}").touch(exist_ok=False)
        except FileExistsError:
            continue
        return True
    return False


def misbehave(kind: str) -> None:
    if kind == "raise":
        raise MemoryError("the fault that was asked for")
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "hang":
        time.sleep(10_000)


@app.train()
@reports_errors
def train(message: Message, context: Context) -> Message:
    server_round = int(message.content[CONFIG]["server-round"])
    partition = int(message.content[CONFIG]["partition-id"])
    for fault in os.environ.get("BFL_FAULTS", "").split():
        kind, *numbers = fault.split(":")
        where = [int(number) for number in numbers]
        if where[:2] == [partition, server_round] and due(kind, *where):
            seconds = float(os.environ.get("BFL_FAULT_DEADLINE", "1e6"))
            with deadline(Node.of(context), seconds):
                misbehave(kind)
    return honest_train(message, context)
'''

SMALL = (
    'model="mlp" closing="none" figures="none" rounds=3 local-epochs=1 mc-samples=2 '
    "evaluate-mc-samples=1 min-clients=3 round-retries=1"
)

pytestmark = [pytest.mark.slow, pytest.mark.long]


class Federation:
    """Runs of three clients, with faults or without."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.app = folder / "faulty"
        self.app.mkdir()
        text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        text = text.replace('"clients.client_app:app"', '"faulty_client:app"')
        (self.app / "pyproject.toml").write_text(text, encoding="utf-8")
        (self.app / "faulty_client.py").write_text(CLIENT, encoding="utf-8")

    def arguments(self, name: str, faults: str, config: str) -> tuple[dict[str, str], list[str]]:
        """Return a run's environment and arguments; a fault is KIND:PARTITION:ROUND:TIMES."""
        shutil.rmtree(self.folder / "faults", ignore_errors=True)
        (self.folder / "faults").mkdir()
        environment = {
            "PYTHONPATH": str(ROOT),
            "BFL_FAULTS": faults,
            "BFL_FAULT_FOLDER": str(self.folder / "faults"),
            "BFL_FAULT_DEADLINE": "3",
        }
        where = f'output-dir="{self.folder}" name="{name}"'
        federation = ["--app", str(self.app), "--num-supernodes", "3"]
        return environment, [*federation, "--run-config", f"{config} {where}"]

    def start(self, name: str, faults: str) -> subprocess.Popen[str]:
        """Start a run on Ray."""
        environment, arguments = self.arguments(name, faults, SMALL)
        call = "import sys; from bfl.commands.flower_simulation import main; sys.exit(main())"
        return subprocess.Popen(
            [sys.executable, "-c", call, *arguments],
            env={**os.environ, **environment, "BFL_FAULT_DEADLINE": "20"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run_here(
        self, name: str, faults: str, *options: str, config: str = SMALL
    ) -> tuple[int, str]:
        """Run to the end in this process."""
        environment, arguments = self.arguments(name, faults, config)
        printed = io.StringIO()
        with (
            pytest.MonkeyPatch.context() as patch,
            redirect_stdout(printed),
            redirect_stderr(printed),
        ):
            for key, value in environment.items():
                patch.setenv(key, value)
            status = main([*arguments, "--backend", "serial", *options])
        return status, printed.getvalue()

    def digests(self, name: str) -> list[str]:
        return [entry["posterior-sha256"] for entry in RunFolder(self.folder / name).rounds()]


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    federation = Federation(tmp_path_factory.mktemp("federation"))
    honest = parse_pairs(f'{SMALL} output-dir="{federation.folder}" name="honest"')
    run_serially(FlowerApp.read(ROOT), honest, 3, {})
    return federation


def test_a_client_that_raises_once_changes_nothing(federation: Federation) -> None:
    """A client that is asked again gives what it would have given."""
    status, printed = federation.run_here("faults", "raise:0:2:1")
    assert status == 0, printed
    assert federation.digests("faults") == federation.digests("honest")
    # Client, round and traceback, once.
    assert printed.count("round 2, client 0: failed: Traceback") == 1
    assert printed.count("MemoryError: the fault that was asked for") == 1


def test_a_client_that_always_fails_is_gone_without(federation: Federation) -> None:
    faults = " ".join(f"raise:1:{number}:9" for number in range(1, 4))
    config = SMALL.replace("min-clients=3", "min-clients=2")
    status, printed = federation.run_here("without", faults, config=config)
    assert status == 0, printed
    rounds = RunFolder(federation.folder / "without").rounds()
    assert [(entry["clients"], entry["failures"]) for entry in rounds] == [(2, 1)] * 3
    assert printed.count("Traceback") == 1
    assert printed.count("(as before)") == 2
    assert federation.digests("without") != federation.digests("honest")


def test_too_few_clients_end_the_run_with_everything_saved(federation: Federation) -> None:
    status, printed = federation.run_here("few", "raise:1:3:9")
    assert status == 1
    assert "round 3: 2 of 3 clients have sent a usable posterior, and min-clients asks for 3" in (
        printed
    )
    folder = federation.folder / "few"
    assert f"--resume {folder}" in printed
    assert federation.digests("few") == federation.digests("honest")[:2]
    status, printed = federation.run_here("few", "", "--resume")
    assert status == 0, printed
    assert federation.digests("few") == federation.digests("honest")


def raylets(pid: int) -> list[int]:
    """Return the raylet among a process's children (Linux)."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            if b"raylet/raylet" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[0]:
                found.append(child)
            found += raylets(child)
    return found


def test_an_actor_and_then_ray_itself_are_killed(federation: Federation) -> None:
    """An actor that died or hung is started anew; a dead engine ends the run within seconds, and it
    goes on as if nothing had been."""
    process = federation.start("dead", "kill:1:1:1 hang:2:1:1 hang:0:2:9")
    # Not before the second round's messages are out: Ray ends a process that is writing to its
    # object store when the raylet dies, from C++ and without a word.
    hanging = federation.folder / "faults" / "hang-0-2-0"
    until = time.monotonic() + 600
    while not hanging.exists() and time.monotonic() < until:
        time.sleep(0.1)
    [raylet] = raylets(process.pid)
    os.kill(raylet, signal.SIGKILL)
    try:
        printed, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "the simulation engine has died: Ray's raylet" in printed
    assert f"--resume {federation.folder / 'dead'}" in printed
    assert "raybackend.py" not in printed  # nothing of Flower's own
    assert federation.digests("dead") == federation.digests("honest")[:1]
    status, printed = federation.run_here("dead", "", "--resume")
    assert status == 0, printed
    assert federation.digests("dead") == federation.digests("honest")
