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
