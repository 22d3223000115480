"""The list of clients: which key plays which partition. Who is not in it is not let in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w

from bfl.configuration.sources import read_toml
from bfl.deployment.folder import SERVER
from bfl.deployment.node_keys import checked_public
from bfl.errors import ConfigurationError, unknown_name
from bfl.files import write_atomically

HEADER = """\
# The clients of this federation: a key, and the partition that only its holder may play.
# Changed by bfl federation add-client and revoke-client; a server that runs sees it within seconds.

"""

# A name is a folder's and a systemd unit's as well.
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,40}[a-z0-9])?")


@dataclass(frozen=True)
class Client:
    """One client.

    Attributes:
        name: Its name, for people and folders.
        partition_id: The partition that it plays.
        public_key: Its public key, one line in OpenSSH's format.
    """

    name: str
    partition_id: int
    public_key: str


@dataclass(frozen=True)
class ClientList:
    """The clients of a federation.

    Attributes:
        num_partitions: How many clients a run has, the same for all.
        clients: Those that are let in, by partition id.
        revoked: Public keys that were let in once, and never again.
    """

    num_partitions: int
    clients: tuple[Client, ...] = ()
    revoked: tuple[str, ...] = ()

    def client(self, name: str) -> Client:
        """Return a client by its name.

        Raises:
            ConfigurationError: There is none of that name.
        """
        by_name = {client.name: client for client in self.clients}
        if name not in by_name:
            raise ConfigurationError(unknown_name("client", name, by_name))
        return by_name[name]

    def vacant(self) -> list[int]:
        """Return the partitions that nobody plays; the next one where all are taken."""
        taken = {client.partition_id for client in self.clients}
        return [p for p in range(self.num_partitions) if p not in taken] or [self.num_partitions]

    def with_client(self, client: Client) -> ClientList:
        """Return the list with one client more.

        Raises:
            ConfigurationError: Its name, key or partition is taken, or its key is revoked.
        """
        clients = sorted((*self.clients, client), key=lambda each: each.partition_id)
        return _checked(
            replace(
                self,
                clients=tuple(clients),
                num_partitions=max(self.num_partitions, client.partition_id + 1),
            )
        )

    def without(self, name: str) -> ClientList:
        """Return the list without a client, whose key is revoked.

        Raises:
            ConfigurationError: There is no client of that name.
        """
        client = self.client(name)
        return replace(
            self,
            clients=tuple(each for each in self.clients if each != client),
            revoked=(*self.revoked, client.public_key),
        )

    def write(self, path: Path) -> None:
        """Write the list as TOML."""
        tables: dict[str, Any] = {"num-partitions": self.num_partitions}
        if self.revoked:
            tables["revoked"] = list(self.revoked)
        tables["client"] = [
            {"name": c.name, "partition-id": c.partition_id, "public-key": c.public_key}
            for c in self.clients
        ]
        write_atomically(path, (HEADER + tomli_w.dumps(tables, multiline_strings=False)).encode())

    @classmethod
    def read(cls, path: Path) -> ClientList:
        """Return the list in a file.

        Raises:
            ConfigurationError: It is not there or cannot be read, or a key, name or partition is
                wrong or stands in it twice; the message names the client.
        """
        tables = read_toml(path)
        try:
            return cls._of(tables)
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {error}") from error

    @classmethod
    def _of(cls, tables: Mapping[str, Any]) -> ClientList:
        _check_keys(tables, ("num-partitions", "revoked", "client"), "the list")
        entries = tables.get("client", [])
        if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
            raise ConfigurationError("expected a table [[client]] for each client")
        clients = [_client(entry, number) for number, entry in enumerate(entries)]
        revoked = [checked_public(str(key), "(revoked)") for key in tables.get("revoked", [])]
        count = tables.get("num-partitions")
        if type(count) is not int or count < 1:
            raise ConfigurationError(f"num-partitions is {count!r}; allowed: at least 1")
        return _checked(cls(count, tuple(clients), tuple(revoked)))


def check_name(name: str) -> None:
    """Refuse a client's name that cannot be that of a folder and a service.

    Raises:
        ConfigurationError: It is none.
    """
    if not _NAME.fullmatch(name) or name == SERVER:
        raise ConfigurationError(
            f"client name {name!r}; allowed: small letters, digits and hyphens within, 42 at most, "
            f"and not {SERVER}"
        )


def _client(entry: Mapping[str, Any], number: int) -> Client:
    name = entry.get("name")
    if not isinstance(name, str):
        raise ConfigurationError(f"the name of client number {number + 1} is {name!r}")
    check_name(name)
    _check_keys(entry, ("name", "partition-id", "public-key"), f"client {name}")
    partition_id = entry.get("partition-id")
    if type(partition_id) is not int:
        raise ConfigurationError(
            f"client {name}: partition-id is {partition_id!r}; allowed: a whole number from 0"
        )
    return Client(name, partition_id, checked_public(str(entry.get("public-key", "")), name))


def _check_keys(table: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise ConfigurationError(f"{where}: {unknown_name('key', key, known)}")


def _checked(clients: ClientList) -> ClientList:
    """Return a list in which nobody is twice.

    Raises:
        ConfigurationError: A key, name or partition stands in it twice, a key is revoked, or a
            partition is beyond their number.
    """
    names: dict[str, Client] = {}
    keys: dict[str, Client] = {}
    partitions: dict[int, Client] = {}
    for client in clients.clients:
        if client.name in names:
            raise ConfigurationError(f"two clients are named {client.name}; allowed: one")
        if other := keys.get(client.public_key):
            raise ConfigurationError(
                f"clients {other.name} and {client.name} have the same public-key; allowed: a key "
                "of its own for each, or one could play the other"
            )
        if client.public_key in clients.revoked:
            raise ConfigurationError(
                f"client {client.name}: its public-key is revoked; give it a new one"
            )
        if other := partitions.get(client.partition_id):
            raise ConfigurationError(
                f"clients {other.name} and {client.name} both have partition-id "
                f"{client.partition_id}; allowed: each its own"
            )
        if not 0 <= client.partition_id < clients.num_partitions:
            raise ConfigurationError(
                f"client {client.name}: partition-id is {client.partition_id}; allowed: 0 to "
                f"{clients.num_partitions - 1}, as num-partitions is {clients.num_partitions}"
            )
        names[client.name] = keys[client.public_key] = partitions[client.partition_id] = client
    return clients
