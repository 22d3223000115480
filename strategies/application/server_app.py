"""The ServerApp."""

from __future__ import annotations

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from bfl.configuration import resolve
from strategies.application.preflight import check_before_start, client_sizes
from strategies.application.run import run_federation


class FederationApp(ServerApp):
    """The ServerApp, which an engine of bfl's may ask before it starts."""

    check_before_start = staticmethod(check_before_start)
    client_sizes = staticmethod(client_sizes)


app = FederationApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation that Flower's run configuration describes."""
    run_federation(grid, resolve(context.run_config))
