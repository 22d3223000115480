"""What of a run's configuration and files the server tells its clients."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployment_grid import DeploymentGrid
from flwr.app import ConfigRecord, Context, Message
from small_federation import make_app, make_grid
from untrained import train_nothing

from bfl.configuration import resolve
from bfl.federation.wire import posterior_to_arrays, reply_content
from bfl.posteriors import Posterior
from clients import client_app
from strategies.application.pretraining import configuration_of_pretraining
from strategies.application.run import run_federation
from strategies.application.run_context import make_strategy
from strategies.run_support import RunSupport


def test_no_file_of_the_server_is_named_in_a_task(tmp_path: Path) -> None:
    """Nor, to nodes that nobody simulates, the run's folder."""
    sent = []

    def reply(task: Any, received: Posterior) -> Any:
        sent.append(task)
        return reply_content(received, {"num-examples": 3})

    given = {
        "output-dir": str(tmp_path),
        "name": "secret-project",
        "server-data": f"npz:{tmp_path}/x",
    }
    configuration = resolve(given, check_data=False, check_parts=False)
    strategy = make_strategy(
        configuration,
        10,
        [np.arange(3), np.arange(3)],
        run=RunSupport(folder=str(tmp_path / "run")),
    )
    initial = Posterior(np.zeros(2, np.float32), np.ones(2, np.float32), np.ones(1, np.float32))
    for simulated in (False, True):
        sent.clear()
        grid = make_grid(make_app(reply, noise_anew=not simulated), 2)
        strategy.start(grid, posterior_to_arrays(initial), num_rounds=1)
        assert len(sent) == 2
        for task in sent:
            assert str(tmp_path) not in task.configuration
            assert "secret-project" not in task.configuration
            assert task.run_folder == (str(tmp_path / "run") if simulated else "")


@pytest.mark.parametrize("exchange", ["direct", "masked"])
def test_where_the_runs_data_lie_is_told_to_nodes_alone_that_look_there(
    exchange: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither before the first round nor in it, nor to a node with data of its own."""
    server = tmp_path / "secret-folder"
    server.mkdir()
    labels = np.arange(40) % 10
    images = np.zeros((40, 8, 8), np.uint8)
    there = {"x_train": images, "y_train": labels, "x_test": images[:2], "y_test": labels[:2]}
    own = tmp_path / "own.npz"
    for path in (server / "mine.npz", own):
        np.savez(path, **there)
    train_nothing(monkeypatch)
    sent: dict[str, list[str]] = {}

    def on_client(message: Message, context: Context) -> Message:
        said = [str(dict(r)) for r in message.content.values() if isinstance(r, ConfigRecord)]
        sent.setdefault(message.metadata.message_type, []).append(" ".join(said))
        asked.setdefault(context.node_id, []).extend(said)
        return client_app.app(message, context)

    def told(*nodes: dict[str, Any]) -> list[bool]:
        """Make a run; return which nodes are told where the server's files are."""
        sent.clear()
        asked.clear()
        grid = DeploymentGrid(on_client, [], len(nodes))  # type: ignore[arg-type]
        for partition_id, config in enumerate(nodes):
            grid.start(partition_id, **config)
        values = {
            "model": "mlp",
            "dataset": f"npz:{server}/mine.npz",
            "data-dir": str(server),
            "rounds": 1,
            "server-evaluates": False,
            "evaluate-every": 0,
            "exchange": exchange,
            "node-timeout": 10.0,
            "output-dir": str(tmp_path / "runs"),
        }
        run = run_federation(grid, resolve(values))
        assert len(run.rounds()) == 1
        assert run.rounds()[0]["clients"] == len(nodes)
        kinds = {"query", "query.network", "train"}
        assert sent.keys() >= (kinds if exchange == "direct" else {*kinds, "train.unmask"})
        return [any(server.name in text for text in asked[node]) for node in sorted(asked)]

    asked: dict[int, list[str]] = {}
    has_own, looks = {"dataset": f"npz:{own}"}, {"allow-run-paths": True}
    both = {**has_own, **looks}
    assert told(has_own, has_own, looks, both) == [False, False, True, False]


def test_runs_that_differ_in_what_tempers_an_objective_begin_alike() -> None:
    plain, tempered = (
        configuration_of_pretraining(resolve(given, check_data=False))
        for given in ({}, {"temperature": 0.1, "local-lr-decay": 0.5})
    )
    assert tempered.values == plain.values
    assert (tempered.keys.temperature, tempered.keys.local_lr_decay) == (1.0, 1.0)
