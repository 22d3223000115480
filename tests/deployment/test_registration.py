"""The list of clients and the keys that Flower knows, with a stand-in for Flower's command."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bfl.deployment import server
from bfl.deployment.authority import new_key, openssh_public
from bfl.deployment.client_list import Client, ClientList, read_bound_nodes
from bfl.deployment.server import Registration
from bfl.errors import RunError

KEYS = [openssh_public(new_key().public_key()) for _ in range(2)]
LISTED = ClientList(
    num_partitions=2,
    clients=tuple(
        Client(name=n, partition_id=i, public_key=k)
        for i, (n, k) in enumerate(zip("ab", KEYS, strict=True))
    ),
)


class Flower:
    """Knows keys, and gives each a node id."""

    def __init__(self, path: Path) -> None:
        self.nodes: dict[int, str] = {}
        self.calls = 0
        self.dies_at = 0
        self.refusals = 0
        self.said: list[str] = []
        self.registration = Registration(self, path, self.said.append)

    def __call__(self, *words: str) -> tuple[int, str]:
        self.calls += 1
        if self.calls == self.dies_at:
            raise KeyboardInterrupt
        assert words[3:] == ("federation", "--format", "json")
        if words[:2] == ("supernode", "register"):
            key = Path(words[2]).read_text()
            if key in self.nodes.values():
                return 1, json.dumps({"success": False, "error-message": "already in use"})
            node = 1000 + self.calls
            self.nodes[node] = key
            return 0, f'a line beside it\n{{"success": true, "node-id": "{node}"}}\n'
        assert words[:2] == ("supernode", "unregister")
        if self.refusals:
            self.refusals -= 1
            return 1, json.dumps({"success": False, "error-message": "connection refused"})
        if int(words[2]) not in self.nodes:
            return 1, json.dumps({"success": False, "error-message": "Node ID not found."})
        del self.nodes[int(words[2])]
        return 0, json.dumps({"success": True})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "nodes.json"


@pytest.fixture
def flower(path: Path) -> Flower:
    return Flower(path)


def agree(flower: Flower, path: Path, listed: ClientList) -> None:
    """Check that Flower knows the keys of the list, each as its client's."""
    assert sorted(flower.nodes.values()) == sorted(c.public_key for c in listed.clients)
    by_key = {c.public_key: c for c in listed.clients}
    expected = {node: by_key[key] for node, key in flower.nodes.items()}
    assert read_bound_nodes(path) == expected


def test_the_keys_of_the_list_are_registered_once(flower: Flower, path: Path) -> None:
    for _ in range(2):
        flower.registration.follow(LISTED)
        agree(flower, path, LISTED)
    assert flower.calls == 2


def test_what_is_taken_off_the_list_is_taken_back(flower: Flower, path: Path) -> None:
    flower.registration.follow(LISTED)
    shorter = LISTED.without("a")
    flower.registration.follow(shorter)
    agree(flower, path, shorter)
    assert flower.said[-1] == "client a is revoked"


def test_a_key_that_flower_has_lost_counts_as_taken_back(flower: Flower, path: Path) -> None:
    flower.registration.follow(LISTED)
    flower.nodes = {node: key for node, key in flower.nodes.items() if key != KEYS[0]}
    flower.registration.follow(LISTED.without("a"))
    agree(flower, path, LISTED.without("a"))


def test_a_client_under_its_key_gets_another_partition(flower: Flower, path: Path) -> None:
    flower.registration.follow(LISTED)
    clients = [c.model_copy(update={"partition_id": 1 - c.partition_id}) for c in LISTED.clients]
    swapped = LISTED.model_copy(update={"clients": tuple(clients)})
    flower.registration.follow(swapped)
    agree(flower, path, swapped)
    assert flower.calls == 2


def test_what_flower_knows_is_written_down_whenever_the_server_ends(
    flower: Flower, path: Path
) -> None:
    flower.dies_at = 2
    with pytest.raises(KeyboardInterrupt):
        flower.registration.follow(LISTED)
    flower.registration.follow(LISTED)
    agree(flower, path, LISTED)


def test_a_refusal_names_the_client(flower: Flower, path: Path) -> None:
    flower.registration.follow(LISTED)
    path.unlink()
    with pytest.raises(RunError, match=r"client [ab]: Flower does not register .*: already in use"):
        flower.registration.follow(LISTED)


class EndedError(Exception):
    """Stands for the end of the server."""


class Looks:
    """In the place of processes: counts looks, acts at one, and ends after some."""

    def __init__(self, at: int, act: Callable[[], object]) -> None:
        self.count, self.at, self.act = 0, at, act

    def check(self) -> None:
        self.count += 1
        if self.count == self.at:
            self.act()
        if self.count > 8:
            raise EndedError


@pytest.mark.parametrize(
    ("refusals", "look"), [(0, 0), (0, 2), (1, 2)], ids=["starting", "running", "failing"]
)
def test_a_revocation_is_not_forgotten(
    refusals: int, look: int, flower: Flower, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever it is, and whatever fails in that moment."""
    monkeypatch.setattr(server, "LOOK_INTERVAL", 0.001)
    listed, shorter = path.with_name("clients.toml"), LISTED.without("b")
    LISTED.write(listed)
    flower.registration.follow(LISTED)
    flower.refusals = refusals
    if not look:
        shorter.write(listed)
    looks: Any = Looks(look, lambda: shorter.write(listed))
    with pytest.raises(EndedError):
        server._watch(looks, listed, flower.registration, flower.said.append)
    agree(flower, path, shorter)
    assert sum("not in use" in line for line in flower.said) == refusals
