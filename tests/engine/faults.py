"""A Flower app like the project's, whose clients misbehave on demand."""

import shutil
from pathlib import Path

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
from clients.client_app import describe
from clients.client_app import train as honest_train
from clients.process import deadline, reports_errors

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
            with deadline(float(os.environ.get("BFL_FAULT_DEADLINE", "1e6"))):
                misbehave(kind)
    return honest_train(message, context)
'''


def make_faulty_app(folder: Path) -> Path:
    """Return the folder of an app with the project's ServerApp and clients that misbehave."""
    app = folder / "faulty"
    app.mkdir()
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    text = text.replace('"clients.client_app:app"', '"faulty_client:app"')
    (app / "pyproject.toml").write_text(text, encoding="utf-8")
    (app / "faulty_client.py").write_text(CLIENT, encoding="utf-8")
    (folder / "faults").mkdir()
    return app


def forget_faults(folder: Path) -> None:
    """Have faults made again that were to be made a number of times."""
    shutil.rmtree(folder / "faults")
    (folder / "faults").mkdir()
