"""The ServerApp."""

from __future__ import annotations

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from bfl.configuration import resolve
from strategies.run import run_federation

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation that Flower's run configuration describes."""
    run_federation(grid, resolve(context.run_config))
