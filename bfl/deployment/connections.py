"""The connections to a server's door: how many there may be, whose, and for how long.

They are counted where they are accepted, before TLS and HTTP. Until a client of the list signs a
call on it, a connection is a stranger's and ends after seconds. Where there are too many, the
oldest one of the address that has most makes room; a client's, known by its key, never does.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from asyncio.sslproto import SSLProtocol
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

from uvicorn.protocols.http.h11_impl import H11Protocol

STRANGERS, OF_AN_ADDRESS, OF_A_CLIENT = 512, 128, 64
"""Connections at one time, of all strangers, of one address's, and of one client, which has up to
some ten. A connection takes some 300 kB at most."""

STRANGERS_SECONDS = 10.0
"""From the beginning of a connection to a call that is signed."""

CALL_SECONDS = 300.0
"""From one of a client's signed calls to its end, with its body and its answer, or to the next."""

IDLE_SECONDS = 60
"""From the end of a client's call to the next; Flower's nodes close sooner."""

HEADER_BYTES = 2**14
"""The bound of a request's headers, of its trailers and of the extensions of its chunks."""

READ_BYTES = 2**14
"""The buffer of each connection: a TLS record. Python takes 256 KiB, also before a handshake."""

BACKLOG, WAITING = 128, 2048
"""Connections that are accepted before any is served, and that wait to be accepted."""


class Connection(socket.socket):
    """A connection that is counted, as one of its address's or of a client's."""

    share: Share
    owner: str
    timer: asyncio.TimerHandle

    def belong(self, share: Share, owner: str, seconds: float) -> None:
        """Count it as an owner's, which it is for so many seconds at most."""
        self.leave()
        self.share, self.owner = share, owner
        self.timer = asyncio.get_running_loop().call_later(seconds, self.end)
        share.add(owner, self)

    def leave(self) -> None:
        """Count it no longer."""
        if hasattr(self, "timer"):
            self.timer.cancel()
            self.share.remove(self.owner, self)

    def end(self) -> None:
        """End it as if the caller had, in whatever state TLS and HTTP are."""
        self.leave()
        with suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give it back to the system."""
        self.leave()
        super().close()


class Share:
    """Connections by owner, from the oldest to the newest: at most so many of one, and of all."""

    def __init__(self, most: int, most_of_all: int | None = None) -> None:
        self._most, self._most_of_all = most, most_of_all
        self._count = 0
        self._by_owner: dict[str, dict[Connection, None]] = {}

    def add(self, owner: str, connection: Connection) -> None:
        """Add a connection, for which another one may have to end."""
        own = self._by_owner.setdefault(owner, {})
        own[connection] = None
        self._count += 1
        if len(own) > self._most:
            next(iter(own)).end()
        elif self._most_of_all and self._count > self._most_of_all:
            largest = max(self._by_owner.values(), key=lambda own: len(own))
            next(iter(largest)).end()

    def remove(self, owner: str, connection: Connection) -> None:
        """Remove a connection, if it is there."""
        own = self._by_owner.get(owner, {})
        if connection in own:
            del own[connection]
            self._count -= 1
        if not own:
            self._by_owner.pop(owner, None)


class Door(socket.socket):
    """A listening socket that counts what it takes.

    Attributes:
        taken: Each connection by the address and port of its other end.
    """

    strangers: Share
    clients: Share
    taken: WeakValueDictionary[tuple[str, int], Connection]

    @classmethod
    def listening(cls, address: str, port: int) -> Door:
        """Return one that listens at an address."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        # The system's address for all takes IPv4 as well.
        both = address == "::" and socket.has_dualstack_ipv6()
        bound = socket.create_server((address, port), family=family, dualstack_ipv6=both)
        door = cls(fileno=bound.detach())
        door.strangers, door.clients = Share(OF_AN_ADDRESS, STRANGERS), Share(OF_A_CLIENT)
        door.taken = WeakValueDictionary()
        SSLProtocol.max_size = READ_BYTES
        return door

    def listen(self, backlog: int = 0, /) -> None:
        """Listen; asyncio takes as many connections at a time as it asks to wait here."""
        super().listen(WAITING)

    def accept(self) -> tuple[socket.socket, Any]:
        """Take a connection; it is a stranger's."""
        taken, peer = super().accept()
        connection = self.taken[peer[:2]] = Connection(fileno=taken.detach())
        connection.belong(self.strangers, _network(peer[0]), STRANGERS_SECONDS)
        return connection, peer

    def signed(self, peer: tuple[str, int], key: str) -> None:
        """Take note that a client has signed a call on the connection from an address and port."""
        connection = self.taken.get(peer)
        if connection and connection.fileno() >= 0:
            connection.belong(self.clients, key, CALL_SECONDS)


class BoundedProtocol(H11Protocol):
    """HTTP of which no more is kept than one request's headers and a piece of its body."""

    def data_received(self, data: bytes) -> None:
        """Give h11, which bounds what is not complete, little at a time."""
        for begin in range(0, len(data), HEADER_BYTES):
            if not self.transport.is_closing():
                super().data_received(data[begin : begin + HEADER_BYTES])


def _network(address: str) -> str:
    """Return what one subscriber has: an address, and of IPv6 a network of 64 bits."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if parsed.version == 4 or parsed.ipv4_mapped:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False))
