"""What of a run's configuration and files the server tells its clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from small_federation import make_app, make_grid

from bfl.configuration import resolve
from bfl.federation.wire import posterior_to_arrays, reply_content
from bfl.posteriors import Posterior
from strategies.configured import make_strategy


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
        configuration, 10, [np.arange(3), np.arange(3)], run_folder=str(tmp_path / "run")
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


def test_the_number_of_nodes_is_put_in_without_resolving_again(monkeypatch: Any) -> None:
    """All else was checked when it was resolved: by the command, which refuses before anything
    starts, and by the ServerApp, to which Flower hands a flat dict and nothing that is resolved.
    """
    from bfl.configuration import configuration as module

    resolved = resolve({"strategy": "scaffold", "model": "mlp", "rounds": 3}, check_data=False)
    expected = resolved.replace(clients=7)

    def resolves(*given: Any, **more: Any) -> Any:
        raise AssertionError("a configuration is resolved again")

    monkeypatch.setattr(module, "resolve", resolves)
    found = resolved.with_clients(7)
    assert found == expected
    assert found.keys.clients == 7
    assert found.values == expected.values
    assert found.given == expected.given


def test_a_run_resolves_its_configuration_once_more_for_its_clients_alone(
    monkeypatch: Any,
) -> None:
    """Neither what makes the Strategy, nor its checks, nor pre-training's task resolves it."""
    from strategies import checks
    from strategies.pretraining import configuration_of_pretraining

    configuration = resolve({"strategy": "nwa", "model": "mlp"}, check_data=False)
    counted = []
    monkeypatch.setattr(checks, "resolve", lambda *given, **more: counted.append(given))

    def reply(task: Any, received: Posterior) -> Any:
        return reply_content(received, {"num-examples": 3})

    strategy = make_strategy(configuration, 10, [np.arange(3), np.arange(3)])
    initial = Posterior(np.zeros(2, np.float32), np.ones(2, np.float32), np.ones(1, np.float32))
    strategy.start(make_grid(make_app(reply), 2), posterior_to_arrays(initial), num_rounds=1)
    configuration_of_pretraining(configuration)
    assert not counted
