"""Bind each of Flower's nodes to the partition of its key in the list of clients.

What a node says of itself, its ``partition-id``, is its own machine's word. Flower knows it by its
key, and gives each key one node id; so the server's process writes down, when it registers a key,
which client's it is, and the run asks that file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from bfl.deployment.client_list import Client
from bfl.errors import ConfigurationError, DataError
from bfl.files import given_path, write_atomically
from bfl.texts import from_json, read_text

VARIABLE = "BFL_NODES"
"""Names the file, in the environment of a server that binds keys to partitions."""

MARK = "bfl-federation"
"""In Flower's home of such a server, a file that says where that file is: a process in whose
environment the name is missing does not believe nodes for that."""


def write_bound_nodes(path: Path, nodes: Mapping[int, Client]) -> None:
    """Write which client's node may play what, by Flower's node id."""
    tables = {str(node): client.model_dump(by_alias=True) for node, client in nodes.items()}
    write_atomically(path, json.dumps(tables, indent=1).encode())


def read_bound_nodes(path: Path) -> dict[int, Client]:
    """Return which client's node may play what; none if nothing has been written yet.

    Raises:
        DataError: The file is damaged.
    """
    try:
        return dict(_nodes_of(path.read_bytes())) if path.exists() else {}
    except (OSError, ValueError, TypeError, AttributeError, ConfigurationError) as error:
        raise DataError(f"{path} does not say which node plays which partition: {error}") from error


@lru_cache(maxsize=1)  # each node is looked up, and every key in the file is parsed
def _nodes_of(data: bytes) -> dict[int, Client]:
    return {int(node): Client.parse(told, node) for node, told in from_json(data).items()}


def binding_problem(node: int, partition_id: int) -> str | None:
    """Return why a node may not play a partition; None if it may, or if nothing is bound here.

    Nothing is bound outside of a federation that ``bfl federation`` has made.

    Args:
        node: Flower's id of the node.
        partition_id: What it says that it plays.

    Raises:
        DataError: The file that binds nodes is damaged.
    """
    place = _place()
    if place is None:
        return None
    bound = read_bound_nodes(place).get(node)
    if bound is None:
        return "its key is not in the list of clients"
    if bound.partition_id != partition_id:
        return (
            f"it has the key of client {bound.name}, which the list of clients binds to partition "
            f"{bound.partition_id}, and says that it plays partition {partition_id}"
        )
    return None


def called(node: int) -> str:
    """Return what a node is called in a message: Flower's id, and its client's name if it is known.

    Args:
        node: Flower's id of the node.

    Raises:
        DataError: The file that binds nodes is damaged.
    """
    place = _place()
    bound = read_bound_nodes(place).get(node) if place else None
    return f"node {node} of client {bound.name}" if bound else f"node {node}"


def mark(home: Path, nodes: Path) -> None:
    """Say in a server's Flower home that its nodes are bound, and by which file."""
    write_atomically(home / MARK, f"{nodes}\n".encode())


def _place() -> Path | None:
    """Return the file that binds nodes; None outside of a federation that binds any.

    Raises:
        DataError: Flower's home says that there is one, and cannot be read.
    """
    if named := os.environ.get(VARIABLE):
        return Path(named)
    home = os.environ.get("FLWR_HOME")
    marked = (given_path(home, "FLWR_HOME") if home else Path.home() / ".flwr") / MARK
    try:
        return Path(read_text(marked).strip())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DataError(f"{marked} does not say where nodes are bound: {error}") from error
