"""Keys of a round that are signed with the nodes' keys, and a server that puts others there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Context, RecordDict
from in_memory import Clients, plain_sum, random_vectors, run

from bfl.deployment.client_list import Client, ClientList
from bfl.deployment.node_keys import openssh_private, openssh_public
from bfl.deployment.signatures import ListedIdentity
from bfl.errors import ConfigurationError
from bfl.federation.secure_aggregation.client import advertise
from bfl.federation.secure_aggregation.errors import ProtocolError
from bfl.federation.secure_aggregation.identity import Identity, Unsigned
from bfl.federation.secure_aggregation.messages import Invitation, Roster
from clients.node import Node

VECTORS = random_vectors(4)
Change = Callable[[int, Roster], Roster]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return a folder with keys and the list of the clients."""
    clients = ClientList(1)
    for client in VECTORS:
        key = ec.generate_private_key(ec.SECP384R1())
        (tmp_path / f"key-{client}").write_bytes(openssh_private(key))
        line = openssh_public(key.public_key())
        clients = clients.with_client(Client(f"site-{client}", client, line))
    clients.write(tmp_path / "clients.toml")
    return tmp_path


def identities(files: Path) -> dict[int, Identity]:
    listed = files / "clients.toml"
    return {c: ListedIdentity.read(files / f"key-{c}", listed, c) for c in VECTORS}


def test_clients_that_sign_and_know_each_other_add_up(files: Path) -> None:
    total = run(Clients(VECTORS, identities=identities(files)))
    np.testing.assert_array_equal(total.total(), plain_sum(VECTORS, list(VECTORS)))


@pytest.mark.parametrize("signed", [False, True])
def test_a_server_that_sits_between_clients_is_found_where_keys_are_signed(
    signed: bool, files: Path
) -> None:
    """It puts keys of its own, and signatures of old ones, in the place of a client's."""
    known = identities(files) if signed else dict.fromkeys(VECTORS, Unsigned())
    clients = Clients(VECTORS, identities=known)
    total = run(clients, until="shares")
    client = min(VECTORS)
    roster = total.rosters()[client]
    victim = roster.neighbours[0]
    _, own = advertise(Invitation("run/1/0", victim), Unsigned())
    _, old = advertise(Invitation("run/0/0", victim), known[victim])
    for keys in (own, replace(own, signature=roster.signatures[0]), old):
        changed = replace(
            roster,
            encryption=[keys.encryption, *roster.encryption[1:]],
            masking=[keys.masking, *roster.masking[1:]],
            signatures=[keys.signature, *roster.signatures[1:]],
        )
        before = clients.states[client]
        if signed:
            with pytest.raises(ProtocolError, match=f"keys of client {victim} are not signed"):
                clients.shares(client, changed)
        else:
            clients.shares(client, changed)
        clients.states[client] = before


def test_a_client_that_is_not_in_ones_own_list_is_refused(files: Path) -> None:
    listed = files / "clients.toml"
    ClientList.read(listed).without("site-7").write(files / "fewer.toml")
    known = identities(files)
    known[1] = ListedIdentity.read(files / "key-1", files / "fewer.toml", 1)
    clients = Clients(VECTORS, identities=known)
    total = run(clients, until="shares")
    with pytest.raises(ProtocolError, match="client 7 is not in this client's own list"):
        clients.shares(1, total.rosters()[1])


def node(**config: Any) -> Node:
    given = {"partition-id": 4, "num-partitions": 11, **config}
    return Node.of(Context(1, 1, given, RecordDict(), {}))


def test_a_node_says_who_it_is_by_its_own_files(files: Path) -> None:
    both = {"signing-key": str(files / "key-4"), "clients-list": str(files / "clients.toml")}
    identity = node(**both).identity
    identities(files)[1].check(4, b"text", identity.sign(b"text"))
    assert isinstance(node().identity, Unsigned)
    for wrong, said in (
        ({"clients-list": both["clients-list"]}, "go together, and one is missing"),
        ({**both, "signing-key": str(files / "key-1")}, "another key .* for partition 4"),
        ({**both, "signing-key": str(files / "none")}, "not a private key"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            _ = node(**wrong).identity
