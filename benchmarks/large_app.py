"""The app of ``large_posteriors.py``: clients that send back what they get, over real messages."""

from __future__ import annotations

import json
from pathlib import Path

import no_op
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

client = no_op.client
server = ServerApp()


@server.main()
def run(grid: Grid, context: Context) -> None:
    """Run the rounds that the run configuration says, and write their seconds to its file."""
    given = context.run_config
    no_op.federation = no_op.Federation(
        clients=int(given["clients"]),
        rounds=int(given["rounds"]),
        gaussians=int(given["gaussians"]),
        points=0,
    )
    no_op.run_ours(grid, context)
    Path(str(given["output"])).write_text(json.dumps(no_op.federation.seconds), encoding="utf-8")
