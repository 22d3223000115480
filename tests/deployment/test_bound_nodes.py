"""A node plays the partition that its key is bound to, whatever it says."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from bfl import printing
from bfl.deployment.authority import new_key, openssh_public
from bfl.deployment.client_list import MARK, Client, binding_problem, mark, write_bound_nodes
from bfl.engine.flower import new_run
from bfl.engine.serial import SerialGrid
from bfl.errors import ConfigurationError, DataError, RunError
from bfl.federation.node_description import NodeDescription
from bfl.federation.wire import posterior_to_arrays
from bfl.posteriors import Posterior
from strategies import ClientOptions, Conflation, federation
from strategies.federation import discover

KEY = openssh_public(new_key().public_key())


def grid_of(*says: int, **others: Any) -> SerialGrid:
    """Return a grid whose nodes say that they play these partitions, and all but one more."""
    app = ClientApp()

    @app.query()
    def describe(message: Message, context: Context) -> Message:
        node = int(context.node_config["partition-id"])
        description = NodeDescription(says[node], len(says), 0, "")
        description = replace(description, **others) if node else description
        return Message(description.to_content(), reply_to=message)

    return SerialGrid(app, len(says), new_run({}), {})


@pytest.fixture
def bind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    mark(tmp_path, tmp_path / "nodes.json")
    return tmp_path / "nodes.json"


def write(path: Path, nodes: list[int], partitions: list[int]) -> None:
    bound = {
        node: Client(name=f"client-{partition}", partition_id=partition, public_key=KEY)
        for node, partition in zip(nodes, partitions, strict=False)
    }
    write_bound_nodes(path, bound)


def test_a_node_plays_its_own_partition_and_no_other(bind: Path) -> None:
    """Both say that they play the other's; without the list they would."""
    grid = grid_of(1, 0)
    nodes = sorted(grid.get_node_ids())
    write(bind, nodes, [1, 0])
    assert discover(grid, 2, timeout=5.0).nodes == {1: nodes[0], 0: nodes[1]}
    write(bind, nodes, [0, 1])
    refused = r"0 of 2 nodes (.|\n)*client-0 .*binds to partition 0, and reports partition 1"
    with pytest.raises(RunError, match=refused):
        discover(grid, 2, timeout=0.3)


@pytest.mark.parametrize(
    ("says", "message"),
    [
        ({"num_partitions": 3}, "2 says {0}; 3 says {1}. It is the number of clients"),
        ({"partition_id": 2}, "the partition-id of {1} is 2; expected 0 to 1"),
    ],
)
def test_a_node_that_does_not_fit_is_called_by_its_clients_name(
    bind: Path, says: dict[str, Any], message: str
) -> None:
    grid = grid_of(0, 1, **says)
    nodes = sorted(grid.get_node_ids())
    played = [0, says.get("partition_id", 1)]
    write(bind, nodes, played)
    names = [f"node {n} of client client-{p}" for n, p in zip(nodes, played, strict=True)]
    with pytest.raises(ConfigurationError) as caught:
        discover(grid, 0, timeout=5.0)
    assert message.format(*names) in str(caught.value)


def test_a_run_names_whom_it_waits_for_and_who_plays_anothers_partition(
    bind: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = list[str]()
    monkeypatch.setattr(federation, "is_simulation", lambda _: False)
    monkeypatch.setattr(federation, "NAMED_AFTER", 0.0)
    monkeypatch.setattr(federation, "AGAIN_AFTER_FAILURE", 0.05)
    monkeypatch.setattr(printing, "doing", steps.append)
    grid = grid_of(0, 0)
    write(bind, sorted(grid.get_node_ids()), [0, 1])
    with pytest.raises(RunError, match=r"1 of 2 nodes .*without client-1;"):
        discover(grid, 2, timeout=0.3, poll=0.01)
    assert steps[-1] == "waits for client-1"
    said = capsys.readouterr().out
    told = re.findall("client client-1.* partition 1, and reports partition 0", said)
    assert len(told) == 1  # and not at each answer


def test_a_node_whose_key_is_not_in_the_list_is_not_used(bind: Path) -> None:
    grid = grid_of(0, 1)
    nodes = sorted(grid.get_node_ids())
    write(bind, nodes, [0])
    with pytest.raises(RunError, match=f"node {nodes[1]} .* its key is not in the list of clients"):
        discover(grid, 2, timeout=0.3)
    # Nor by a Strategy that would number nodes without asking them.
    strategy = Conflation(client_options=ClientOptions(clients=2, node_timeout=0.3))
    with pytest.raises(RunError, match="is not in the list of clients"):
        strategy.start(grid, posterior_to_arrays(Posterior(np.zeros(1), np.ones(1), np.zeros(0))))


def test_flowers_home_says_whether_nodes_are_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    assert binding_problem(7, 0) is None
    assert discover(grid_of(1, 0), 2, timeout=5.0).size == 2  # without a list nodes are believed
    mark(tmp_path, tmp_path / "nodes.json")
    assert binding_problem(7, 0) == "its key is not in the list of clients"
    write(tmp_path / "nodes.json", [7], [1])
    assert "binds to partition 1" in str(binding_problem(7, 0))
    assert binding_problem(7, 1) is None
    (tmp_path / "nodes.json").write_text('{"7": {"name": "a"}}')  # damaged, it lets nobody in
    with pytest.raises(DataError, match=r"nodes\.json"):
        binding_problem(7, 1)
    (tmp_path / MARK).write_bytes(b"\xff")
    with pytest.raises(DataError, match="does not say where nodes are bound"):
        binding_problem(7, 1)
