"""Flower's engine in memory, with nobody who plays clients: what is asked is taken by hand."""

from typing import Any

from flwr.app import Message, RecordDict
from flwr.proto.task_pb2 import Task
from flwr.server.superlink.fleet.vce import vce_api
from flwr.server.superlink.linkstate import InMemoryLinkState, LinkStateFactory
from flwr.server.superlink.linkstate.in_memory_linkstate import RunRecord
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.grid import InMemoryGrid

from bfl.engine.flower import grid, new_run


class Engine:
    """Flower's in-memory state with so many nodes, and its grid."""

    def __init__(self, nodes: int) -> None:
        factory = LinkStateFactory(
            FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager(), ObjectStoreFactory()
        )
        self.state: Any = factory.state()
        assert isinstance(self.state, InMemoryLinkState)
        run = new_run({})
        self.state.run_ids[run.run_id] = RunRecord(run=run)
        self.state.task_store[run.primary_task_id] = Task(
            task_id=run.primary_task_id, run_id=run.run_id
        )
        self.nodes = vce_api._register_nodes(nodes, factory)
        self.grid = InMemoryGrid(factory)
        self.grid.set_run(run)

    def push(self, nodes: list[int]) -> list[str]:
        return list(self.grid.push_messages([Message(RecordDict(), n, "train") for n in nodes]))

    def taken(self) -> list[int]:
        """Return the destinations of what is handed out now."""
        return [message.metadata.dst_node_id for message in grid.new_messages(self.state)]

    def answer(self, message: Message) -> None:
        """Have a node answer what was handed out to it."""
        reply = Message(RecordDict(), reply_to=message)
        reply.metadata.__dict__["_message_id"] = f"reply to {message.metadata.message_id}"
        self.state.store_message_res(reply)
