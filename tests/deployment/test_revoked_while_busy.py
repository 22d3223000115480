"""A client that is revoked stays revoked, whenever that is and whatever fails in that moment."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bfl.deployment import server
from bfl.deployment.authority import new_key, openssh_public
from bfl.deployment.client_list import Client, ClientList, read_bound_nodes
from bfl.deployment.server import Registration


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
    ("failures", "look"), [(0, 0), (0, 2), (1, 2)], ids=["starting", "running", "failing"]
)
def test_a_revocation_is_not_forgotten(
    failures: int, look: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LOOK_INTERVAL", 0.001)
    clients = tuple(
        Client(name=name, partition_id=number, public_key=openssh_public(new_key().public_key()))
        for number, name in enumerate("ab")
    )
    listed, path = ClientList(num_partitions=2, clients=clients), tmp_path / "clients.toml"
    listed.write(path)
    nodes, left, said = iter(("11", "12")), [failures], list[str]()

    def flower(*words: str) -> tuple[int, str]:
        if words[1] == "register":
            return 0, json.dumps({"success": True, "node-id": next(nodes)})
        if left[0]:
            left[0] -= 1
            return 1, json.dumps({"success": False, "error-message": "connection refused"})
        return 0, json.dumps({"success": True})

    registration = Registration(flower, tmp_path / "nodes.json", said.append)
    registration.follow(ClientList.read(path))

    def revoke() -> None:
        listed.without("b").write(path)

    if not look:
        revoke()
    looks: Any = Looks(look, revoke)
    with pytest.raises(EndedError):
        server._watch(looks, path, registration, said.append)
    bound = read_bound_nodes(tmp_path / "nodes.json").values()
    assert [node.name for node in bound] == ["a"]
    assert sum("not in use" in line for line in said) == failures
