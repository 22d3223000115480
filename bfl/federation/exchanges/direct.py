"""Each client sends the server its posterior."""

from __future__ import annotations

from bfl.federation.exchanges.base import Exchange, exchanges


@exchanges.register("direct")
class Direct(Exchange):
    """Each client's posterior as it is, which the server checks and pools."""
