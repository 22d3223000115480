"""Descriptions that nodes give of themselves: each is asked once, and late answers count."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from bfl.data.datasets import Reading, portable_dataset
from bfl.deployment.client_list import binding_problem
from bfl.errors import ConfigurationError, RunError
from bfl.federation.client_metrics import neutralized
from bfl.federation.node_description import PERSONAL_MODELS, NodeDescription
from bfl.federation.wire import DATA_DIR, DATASET, NUM_CLASSES, PRIVATE
from strategies.messaging import Outstanding

AGAIN_AFTER_FAILURE = 5.0
"""Seconds after which a node is asked again that has answered with an error."""

AGAIN_AFTER_SILENCE = 60.0
"""Seconds after which a node is asked again that says nothing: its process may have been ended with
the question in hand. The answer to an earlier question is still taken."""


class NodeDescriptions:
    """Asks nodes who they are, and remembers what they say.

    Args:
        plugins: The run's plugins, which the nodes look for.
        private: Whether nodes shall not say how many examples they have.
        num_classes: The number of classes that nodes' own labels are held to; None: they are not.
        dataset: The run's data set and where it looks for archives, which nodes without data of
            their own look for; None: they do not.
        personal_models: Whether clients train personal models, of their node's own word if it has
            one.

    Attributes:
        failures: What nodes have answered that could not say who they are.
        malformed: The answers that are not as docs/wire-format.md says.
    """

    def __init__(
        self,
        grid: Grid,
        plugins: str = "",
        *,
        private: bool = False,
        num_classes: int | None = None,
        dataset: tuple[str, str, Reading] | None = None,
        personal_models: bool = False,
    ) -> None:
        self.known: dict[int, NodeDescription] = {}
        self.failures: dict[int, str] = {}
        self.malformed: dict[int, str] = {}
        self._notes: set[str] = set()
        self._grid = grid
        self._question: dict[str, Any] = {
            **({"plugins": plugins} if plugins else {}),
            **({PRIVATE: True} if private else {}),
            **({NUM_CLASSES: num_classes} if num_classes is not None else {}),
            **({DATASET: portable_dataset(dataset[0]), **dataset[2].values()} if dataset else {}),
            **({PERSONAL_MODELS: True} if personal_models else {}),
        }
        self._where = dict(zip((DATASET, DATA_DIR), dataset[:2], strict=True)) if dataset else {}
        self._asked_with_paths: set[str] = set()
        self._outstanding = Outstanding(grid)
        self._ask_again: dict[int, float] = {}

    def ask(self, besides: Collection[int] = ()) -> set[int]:
        """Ask the nodes online that are not known yet; return the ids of all that are online."""
        online = set(self._grid.get_node_ids())
        now = time.monotonic()
        unknown = [
            node
            for node in sorted(online - self.known.keys() - set(besides))
            if self._ask_again.get(node, now) <= now
        ]
        self._ask_again.update(dict.fromkeys(unknown, now + AGAIN_AFTER_SILENCE))
        self._send(self._question, unknown)
        return online

    def listen(self, until: float) -> None:
        """Take answers until all nodes have given theirs, or until a time by the monotonic clock.

        Raises:
            RunError: The engine has died.
        """
        while self._outstanding.messages:
            replies = self._outstanding.replies()
            self._take(replies)
            if not replies:
                if time.monotonic() >= until:
                    return
                self._outstanding.pause()

    def take_note(self, text: str) -> bool:
        """Note what somebody warns of; return whether it is the first time."""
        new = text not in self._notes
        self._notes.add(text)
        return new

    def silent(self) -> list[int]:
        """Return the nodes that have been asked and have not answered yet."""
        queried = {message.metadata.dst_node_id for message in self._outstanding.messages.values()}
        return sorted(queried - self.known.keys())

    def _send(self, question: Mapping[str, Any], nodes: Iterable[int]) -> list[Message]:
        content = RecordDict({"config": ConfigRecord(dict(question))})
        messages = [Message(content, node, MessageType.QUERY) for node in nodes]
        self._take(self._outstanding.send(messages))
        return messages

    def _take(self, replies: Iterable[Message]) -> None:
        for reply in replies:
            node = reply.metadata.src_node_id
            try:
                if reply.has_error():
                    raise RunError(reply.error.reason)
                description = NodeDescription.from_content(reply.content)
                if problem := binding_problem(node, description.partition_id):
                    raise RunError(problem)
                knows_paths = reply.metadata.reply_to_message_id in self._asked_with_paths
                if description.reads_run_paths and self._where and not knows_paths:
                    # Whether it has the data is known when it has been told where they are.
                    sent = self._send({**self._question, **self._where}, [node])
                    self._asked_with_paths.update(message.metadata.message_id for message in sent)
                    continue
                self.known[node] = description
                self.failures.pop(node, None)
            except (ConfigurationError, RunError) as error:
                if node not in self.known:
                    self.failures[node] = neutralized(str(error))
                    self._ask_again[node] = time.monotonic() + AGAIN_AFTER_FAILURE
                if isinstance(error, ConfigurationError):
                    self.malformed[node] = neutralized(str(error))
