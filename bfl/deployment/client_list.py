"""The list of clients: the key of each partition, to which Flower's nodes are bound."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Self

import pydantic
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA384
from pydantic import AfterValidator, Field

from bfl.deployment.authority import checked_public, load_private_key, openssh_public
from bfl.deployment.private_files import SERVER
from bfl.deployment.settings import Table
from bfl.errors import ConfigurationError, DataError, ProtocolError, unknown_name
from bfl.files import given_path, write_atomically
from bfl.texts import read_text

HEADER = """\
# The clients of this federation: a key, and the partition that is bound to it.
# Changed by bfl federation add-client and revoke-client; a running server follows within seconds.

"""

# A name is a folder's and a systemd unit's as well.
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,40}[a-z0-9])?")


def checked_name(name: str) -> str:
    """Return a client's name, which can be that of a folder and a service."""
    if not _NAME.fullmatch(name) or name == SERVER:
        raise ConfigurationError(
            f"client name {name!r}; allowed: small letters, digits and hyphens within, 42 at most, "
            f"and not {SERVER}"
        )
    return name


class Client(Table):
    """One client, with its public key in a line of OpenSSH's format."""

    name: Annotated[str, AfterValidator(checked_name)]
    partition_id: int
    public_key: Annotated[str, AfterValidator(checked_public)]


def _clients(given: Any) -> Any:
    if not isinstance(given, list | tuple):
        raise ConfigurationError("expected a table [[client]] for each client")
    clients = []
    for number, each in enumerate(given):
        if isinstance(each, Mapping):
            each = Client.parse(each, f"client {each.get('name', f'number {number + 1}')}")
        clients.append(each)
    return tuple(clients)


class ClientList(Table):
    """The clients that are let in, by partition id."""

    num_partitions: int = Field(ge=1)
    clients: Annotated[tuple[Client, ...], pydantic.BeforeValidator(_clients)] = Field(
        (), alias="client"
    )

    @pydantic.model_validator(mode="after")
    def _nobody_twice(self) -> Self:
        others: dict[tuple[str, Any], Client] = {}
        for client in self.clients:
            for key, value in client.model_dump(by_alias=True).items():
                other = others.setdefault((key, value), client)
                if other is not client:
                    raise ConfigurationError(
                        f"clients {other.name} and {client.name} both have {key} {value}; allowed: "
                        "each its own"
                    )
            if not 0 <= client.partition_id < self.num_partitions:
                raise ConfigurationError(
                    f"client {client.name}: partition-id is {client.partition_id}; allowed: 0 to "
                    f"{self.num_partitions - 1}, as num-partitions is {self.num_partitions}"
                )
        return self

    def client(self, name: str) -> Client:
        """Return a client by its name."""
        by_name = {client.name: client for client in self.clients}
        if name not in by_name:
            raise ConfigurationError(unknown_name("client", name, by_name))
        return by_name[name]

    def vacant(self) -> int:
        """Return the first free partition; if all are taken, the next one."""
        taken = {client.partition_id for client in self.clients}
        return next(p for p in range(len(taken) + 1) if p not in taken)

    def with_client(self, client: Client) -> ClientList:
        """Return the list with one client more."""
        return ClientList(
            num_partitions=max(self.num_partitions, client.partition_id + 1),
            clients=tuple(sorted((*self.clients, client), key=lambda each: each.partition_id)),
        )

    def without(self, name: str) -> ClientList:
        """Return the list without a client."""
        client = self.client(name)
        return self.model_copy(
            update={"clients": tuple(each for each in self.clients if each != client)}
        )


_SCHEME = ec.ECDSA(SHA384())


@dataclass(frozen=True)
class ListedIdentity:
    """A client that signs with its key, and knows the listed public keys by partition id."""

    _key: ec.EllipticCurvePrivateKey
    _keys: Mapping[int, str]

    @classmethod
    def read(cls, key: Path, clients: Path, partition_id: int) -> ListedIdentity:
        """Return the identity by a client's key and its own copy of the list of clients."""
        private = load_private_key(key)
        keys = {each.partition_id: each.public_key for each in ClientList.read(clients).clients}
        if keys.get(partition_id) != openssh_public(private.public_key()):
            raise ConfigurationError(
                f"node configuration: the list {clients} has another key than {key} for partition "
                f"{partition_id}, which is this node's"
            )
        return cls(private, keys)

    def sign(self, text: bytes) -> bytes:
        """Return the client's signature under a text: ECDSA with SHA-384."""
        return self._key.sign(text, _SCHEME)

    def check(self, client: int, text: bytes, signature: bytes) -> None:
        """Raise ProtocolError unless a text is signed by the listed client of a partition."""
        line = self._keys.get(client)
        if line is None:
            raise ProtocolError(f"client {client} is not in this client's own list of clients")
        public = serialization.load_ssh_public_key(line.encode())
        assert isinstance(public, ec.EllipticCurvePublicKey)  # as the list was checked for
        try:
            public.verify(signature, text, _SCHEME)
        except InvalidSignature as error:
            raise ProtocolError(
                f"the keys of client {client} are not signed with the key that this client's own "
                "list of clients has for it"
            ) from error


_NODES = pydantic.TypeAdapter(dict[int, Client])

MARK = "bfl-federation"
"""The file in a server's Flower home that says where its nodes are bound."""


def write_bound_nodes(path: Path, nodes: Mapping[int, Client]) -> None:
    """Write the client of each node, by Flower's node id."""
    write_atomically(path, _NODES.dump_json(dict(nodes), by_alias=True, indent=1))


def read_bound_nodes(path: Path) -> dict[int, Client]:
    """Return the client of each node; empty if nothing has been written yet."""
    try:
        return dict(_nodes_of(path.read_bytes())) if path.exists() else {}
    except (OSError, ValueError, ConfigurationError) as error:
        raise DataError(f"{path} is not a list of nodes and their partitions: {error}") from error


@lru_cache(maxsize=1)  # each node is looked up, and every key in the file is parsed
def _nodes_of(data: bytes) -> dict[int, Client]:
    return _NODES.validate_json(data)


def binding_problem(node: int, partition_id: int) -> str | None:
    """Return why a node may not have the partition that it reports; None: it may.

    Only a federation that ``bfl federation`` has made binds partitions to keys.
    """
    place = bound_nodes_file()
    if not place:
        return None
    bound = read_bound_nodes(place).get(node)
    if bound is None:
        return "its key is not in the list of clients"
    if bound.partition_id != partition_id:
        return (
            f"it has the key of client {bound.name}, which the list of clients binds to partition "
            f"{bound.partition_id}, and reports partition {partition_id}"
        )
    return None


def name_node(node: int) -> str:
    """Return a node's name for messages: Flower's id, and its client's name if that is known."""
    [name] = client_names([node])
    return f"node {node} of client {name}" if name else f"node {node}"


def client_names(nodes: Iterable[int]) -> list[str]:
    """Return the names of the clients whose keys nodes have; empty ones if they are not bound."""
    bound = bound_clients()
    return [bound[node].name if node in bound else "" for node in nodes]


def bound_clients() -> dict[int, Client]:
    """Return the client of each node; empty if none is bound."""
    place = bound_nodes_file()
    return read_bound_nodes(place) if place else {}


def mark(home: Path, nodes: Path) -> None:
    """Say in a server's Flower home that its nodes are bound, and by which file."""
    write_atomically(home / MARK, f"{nodes}\n".encode())


def bound_nodes_file() -> Path | None:
    """Return the file that binds nodes; None outside of a federation that binds any."""
    home = os.environ.get("FLWR_HOME")
    marked = (given_path(home, "FLWR_HOME") if home else Path.home() / ".flwr") / MARK
    try:
        return Path(read_text(marked).strip())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DataError(f"{marked} does not say where nodes are bound: {error}") from error
