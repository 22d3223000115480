"""Declarations of parts that may use the server's data and network."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from bfl.data.datasets.server_data import ServerData


class UsesServer:
    """A part of a kind that may ask the server; found by this class, before the first round.

    Attributes:
        needs_server: Whether it needs data and a network of the server's own.
    """

    needs_server: ClassVar[bool] = False

    def check(self, data: ServerData | None) -> None:
        """Raise, before the first round, what is wrong with the server's data.

        Raises:
            ConfigurationError: They do not serve.
        """
        return
