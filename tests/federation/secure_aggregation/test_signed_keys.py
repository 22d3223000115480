"""Keys of a round that are signed with the nodes' keys, and a server that puts others there."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import PrivateFormat
from flwr.app import Context, RecordDict
from in_memory import Clients, plain_sum, random_vectors, run

from bfl.deployment.authority import openssh_public, private_pem
from bfl.deployment.client_list import Client, ClientList, ListedIdentity
from bfl.errors import BflError, ConfigurationError, DataError, ProtocolError, UnusableClientsError
from bfl.federation.secure_aggregation.client import advertise
from bfl.federation.secure_aggregation.keys import Identity, Unsigned
from bfl.federation.secure_aggregation.messages import Invitation, Roster, Shares
from clients.node import Node

VECTORS = random_vectors(4)
Change = Callable[[int, Roster], Roster]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return a folder with keys and the list of the clients."""
    clients = ClientList(num_partitions=1)
    for client in VECTORS:
        key = ec.generate_private_key(ec.SECP384R1())
        (tmp_path / f"key-{client}").write_bytes(private_pem(key, PrivateFormat.OpenSSH))
        line = openssh_public(key.public_key())
        clients = clients.with_client(
            Client(name=f"site-{client}", partition_id=client, public_key=line)
        )
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
        sent = clients.shares(client, changed)
        assert sent.refused == ([victim] if signed else [])
        assert bool(sent.boxes) != signed  # it shares nothing with whom it does not know
        clients.states[client] = before


def test_a_client_that_is_not_in_ones_own_list_is_refused(files: Path) -> None:
    listed = files / "clients.toml"
    ClientList.read(listed).without("site-7").write(files / "fewer.toml")
    known = identities(files)
    known[1] = ListedIdentity.read(files / "key-1", files / "fewer.toml", 1)
    clients = Clients(VECTORS, identities=known)
    total = run(clients, until="shares")
    assert clients.shares(1, total.rosters()[1]).refused == [7]
    with pytest.raises(ProtocolError, match="client 7 is not in this client's own list"):
        known[1].check(7, b"text", b"")


class Badly:
    """A client that signs its keys with another key than the listed one."""

    def __init__(self, listed: Identity) -> None:
        self._listed, self._other = listed, ec.generate_private_key(ec.SECP384R1())

    def sign(self, text: bytes) -> bytes:
        return self._other.sign(text, ec.ECDSA(SHA384()))

    def check(self, client: int, text: bytes, signature: bytes) -> None:
        self._listed.check(client, text, signature)


def test_a_client_whose_signature_is_wrong_is_named_and_the_next_attempt_ends_without_it(
    files: Path,
) -> None:
    known = identities(files)
    known[4] = Badly(known[4])
    clients = Clients(VECTORS, identities=known)
    with pytest.raises(UnusableClientsError, match="client 4: its keys are not signed") as caught:
        run(clients, ignore=True)
    assert list(caught.value.reasons) == [4]
    left = {c: v for c, v in VECTORS.items() if c != 4}
    total = run(Clients(left, identities=known), label="run/1/1")
    np.testing.assert_array_equal(total.total(), plain_sum(VECTORS, list(left)))


def test_a_client_that_refuses_all_others_drops_out_and_no_more(files: Path) -> None:
    class Refusing(Clients):
        def shares(self, client: int, message: Any) -> Shares:
            if client == 1:
                return Shares([], [], [], [], message.neighbours)
            return super().shares(client, message)

    total = run(Refusing(VECTORS, identities=identities(files)), ignore=True)
    assert total.survivors == [4, 7, 10]
    np.testing.assert_array_equal(total.total(), plain_sum(VECTORS, total.survivors))


def node(**config: Any) -> Node:
    given = {"partition-id": 4, "num-partitions": 11, **config}
    return Node.of(Context(1, 1, given, RecordDict(), {}))


def test_a_node_says_who_it_is_by_its_own_files(files: Path) -> None:
    both = {"signing-key": str(files / "key-4"), "clients-list": str(files / "clients.toml")}
    identity = node(**both).identity
    identities(files)[1].check(4, b"text", identity.sign(b"text"))
    assert isinstance(node().identity, Unsigned)
    incomplete, missing = {"clients-list": both["clients-list"]}, str(files / "none")
    of_another = {**both, "signing-key": str(files / "key-1")}
    refused: list[tuple[dict[str, str], type[BflError], str]] = [
        (incomplete, ConfigurationError, "go together, and one is missing"),
        (of_another, ConfigurationError, "another key .* for partition 4"),
        ({**both, "signing-key": missing}, DataError, missing),
    ]
    for wrong, error, said in refused:
        with pytest.raises(error, match=said):
            _ = node(**wrong).identity
