"""The ServerApp."""

from __future__ import annotations

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from bfl.configuration import Configuration, resolve
from strategies.application.preflight import check_before_start, client_sizes
from strategies.application.run import run_federation


class FederationApp(ServerApp):
    """The ServerApp, which an engine of bfl's may ask before it starts."""

    def check_before_start(self, configuration: Configuration, clients: int) -> None:
        """See ``strategies.application.preflight.check_before_start``."""
        check_before_start(configuration, clients)

    def client_sizes(self, configuration: Configuration, clients: int) -> tuple[int, ...]:
        """See ``strategies.application.preflight.client_sizes``."""
        return client_sizes(configuration, clients)


app = FederationApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation that Flower's run configuration describes."""
    run_federation(grid, resolve(context.run_config))
