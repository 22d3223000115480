"""Identities of clients for each other: signatures under their keys, where they can be checked."""

from __future__ import annotations

from typing import Protocol


class Identity(Protocol):
    """A client's own lasting key, and what it knows of those of others."""

    def sign(self, text: bytes) -> bytes:
        """Return the client's signature under a text; empty where it has no key."""

    def check(self, client: int, text: bytes, signature: bytes) -> None:
        """Raise unless a text is signed by the client of that number.

        Raises:
            ProtocolError: It is not, or nobody of that number is known.
        """


class Unsigned:
    """Clients without lasting keys, as in a simulation: the server's word is taken."""

    def sign(self, text: bytes) -> bytes:
        """Return nothing."""
        return b""

    def check(self, client: int, text: bytes, signature: bytes) -> None:
        """Take whatever there is."""


def signed_text(label: str, client: int, encryption: bytes, masking: bytes) -> bytes:
    """Return what a client signs of its keys of a round."""
    return f"bfl secure aggregation, {label}, client {client}".encode() + encryption + masking
