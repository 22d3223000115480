"""What is off does nothing, and what is checked is checked once."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from flwr.app import Context, Message
from untrained import train_nothing

from bfl.aggregation.defences import Defence
from bfl.configuration.keys import Keys
from bfl.engine.flower import new_context, new_run
from bfl.engine.serial import SerialGrid
from bfl.experiments.results.run_folder import RunFolder
from bfl.posteriors import Posterior
from bfl.registry import Component
from clients import client_app, process
from strategies.application import run as application
from strategies.method import Method
from strategies.round import round_request, weigh
from strategies.server_state import ServerState
from strategies.updates import ClientUpdate

START = Posterior(np.zeros(3, np.float32), np.ones(3, np.float32))


class Watching(Defence):
    """Changes nothing, and need not see all updates together."""

    idle: ClassVar[bool] = True

    def protect(self, posteriors: Sequence[Posterior]) -> list[Posterior]:
        raise AssertionError("all updates were held together")


def test_an_idle_defence_waits_for_no_other_update() -> None:
    defence = Watching()
    assert not defence.has()
    pending: list[int] = []

    def updates() -> Iterator[ClientUpdate]:
        for client in range(3):
            pending.append(client)
            yield ClientUpdate(client, START, 5, {})

    method = Method.of_parts(
        sampling="random",
        pooling="conflation",
        weighting="train-size",
        defence=defence,
        server_optimizer="none",
    )
    request = round_request(method, ServerState.first(START, 3), 0, {})
    for update, weight in weigh(request, updates(), dict.fromkeys(range(3), 5), None):
        assert weight == 1 / 3
        assert pending == [update.partition_id]
        pending.clear()


ROUNDS, CLIENTS = 3, 3
GIVEN = {
    "dataset": "digits",
    "model": "mlp",
    "clients": CLIENTS,
    "rounds": ROUNDS,
    "server-evaluates": False,
    "node-timeout": 10.0,
    "name": "run",
}


@dataclass
class Validations:
    """How often values were validated: keys by the side, and settings in each call.

    A call is what the server does between two of a client, and what a client does with a message.
    Parts that are made without any setting, by default, are not counted.
    """

    keys: Counter[str]
    settings: dict[str, list[int]]


def validations(monkeypatch: pytest.MonkeyPatch, folder: Path, **more: Any) -> Validations:
    """Make a run through the ServerApp and the ClientApp, and count."""
    found = Validations(Counter(), {"server": [0], "clients": []})
    side = "server"
    make_keys, make_part = Keys.__init__, Component.__init__

    def count_keys(self: Keys, **given: Any) -> None:
        found.keys[side] += bool(given)
        make_keys(self, **given)

    def count_part(self: Component, **given: Any) -> None:
        found.settings[side][-1] += bool(given)
        make_part(self, **given)

    def on_client(message: Message, context: Context) -> Message:
        nonlocal side
        side = "clients"
        found.settings[side].append(0)
        reply = client_app.app(message, context)
        side = "server"
        found.settings[side].append(0)
        return reply

    monkeypatch.setattr(Keys, "__init__", count_keys)
    monkeypatch.setattr(Component, "__init__", count_part)
    train_nothing(monkeypatch)
    process._resolved.cache_clear()
    values = {**GIVEN, "output-dir": str(folder), **more}
    run = new_run(values)
    grid = SerialGrid(on_client, CLIENTS, run, values)  # type: ignore[arg-type]
    application.app(grid=grid, context=new_context(run.run_id, values))
    assert len(RunFolder(folder / "run").rounds()) == ROUNDS
    return found


@pytest.mark.parametrize("exchange", ["direct", "masked"])
def test_each_side_validates_the_configuration_once(
    exchange: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = validations(monkeypatch, tmp_path, exchange=exchange, **{"fraction-train": 1.0})
    assert found.keys == {"server": 1, "clients": 1}
    of_server, of_clients = found.settings["server"], found.settings["clients"]
    # Before the first client is asked anything; and before one is asked for the first time what
    # comes with the configuration.
    assert [bool(count) for count in of_server] == [True] + [False] * len(of_clients)
    assert sum(map(bool, of_clients)) == 1
    assert len(of_clients) >= (2 + ROUNDS) * CLIENTS
