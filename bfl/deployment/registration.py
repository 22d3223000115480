"""The list of clients, brought to a running SuperLink: keys registered, and others taken back."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from bfl.deployment.bound_nodes import read_bound_nodes, write_bound_nodes
from bfl.deployment.client_list import Client, ClientList
from bfl.errors import RunError
from bfl.texts import from_json

CONNECTION = "federation"
"""The name of the connection in the server's own Flower configuration."""

Flwr = Callable[..., tuple[int, str]]
"""Runs the command ``flwr`` with the words given; returns its status and what it says."""


class Registration:
    """The nodes registered at a SuperLink, kept as the list of clients says.

    Args:
        flwr: Runs ``flwr``.
        path: The file that says which node may play what.
        say: Told what changes.
    """

    def __init__(self, flwr: Flwr, path: Path, say: Callable[[str], None]) -> None:
        self._flwr = flwr
        self._path = path
        self._say = say

    def follow(self, listed: ClientList) -> None:
        """Take back the keys that are not in the list, and register those that are new.

        Raises:
            RunError: Flower refuses; the message names the client.
        """
        nodes = read_bound_nodes(self._path)
        by_key = {client.public_key: client for client in listed.clients}
        refused: RunError | None = None
        for node, bound in list(nodes.items()):
            if bound.public_key not in by_key:
                try:
                    self._unregister(node, bound)
                except RunError as error:
                    refused = error  # the others' keys are taken back all the same
                else:
                    del nodes[node]
        if refused:
            write_bound_nodes(self._path, nodes)
            raise refused
        # A client may have got another name or partition under its key.
        nodes = {node: by_key[bound.public_key] for node, bound in nodes.items()}
        write_bound_nodes(self._path, nodes)
        known = {bound.public_key for bound in nodes.values()}
        for key in by_key.keys() - known:
            nodes[self._register(by_key[key])] = by_key[key]
            # One by one: whatever ends this process, a key that Flower knows is written down.
            write_bound_nodes(self._path, nodes)

    def _register(self, client: Client) -> int:
        with tempfile.NamedTemporaryFile("w", suffix=".pub") as stream:
            stream.write(client.public_key)
            stream.flush()
            status, said = self._flwr(
                *("supernode", "register", stream.name, CONNECTION, "--format", "json")
            )
        answer = _json(said)
        if status or not answer.get("success"):
            reason = answer.get("error-message", said).strip()
            raise RunError(
                f"client {client.name}: Flower does not register its key: {reason}\n"
                f"where {self._path} and Flower's own state.db beside it are of different times, "
                "remove both; runs and their folders are kept"
            )
        self._say(f"client {client.name} may play partition {client.partition_id}")
        return int(answer["node-id"])

    def _unregister(self, node: int, client: Client) -> None:
        status, said = self._flwr(
            *("supernode", "unregister", str(node), CONNECTION, "--format", "json")
        )
        answer = _json(said)
        # Gone is gone, also where Flower has lost its state.
        if status and "not found" not in said.lower():
            reason = answer.get("error-message", said).strip()
            raise RunError(f"client {client.name}: Flower does not take back its key: {reason}")
        self._say(f"client {client.name} is revoked")


def _json(said: str) -> dict[str, str]:
    """Return the JSON object in what a command says, besides which there may be other lines."""
    begin, end = said.find("{"), said.rfind("}")
    try:
        answer = from_json(said[begin : end + 1])
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
