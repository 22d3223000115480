"""Replies larger than any can be, over Flower's own grid: refused while they come."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import PullObjectResponse
from flwr.proto.runtime_pb2 import PullAppMessagesResponse, PushAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError
from flwr.superlink.grid import HttpGrid

from bfl.deployment.proxy import MOST_BYTES
from bfl.engine.flower import new_run
from bfl.engine.flower.replies import replies_up_to
from strategies.exchange import ALLOWANCE, TIMES, exchange

PIECE, SIZE = 5 * 2**20, 2**18


class SuperLink:
    """In the place of Flower's client of the runtime API: nodes 1 and 2 send so many bytes back."""

    def __init__(self, sizes: dict[int, int]) -> None:
        self.sizes = sizes
        self.messages: list[Message] = []
        self.objects: dict[str, bytes] = {}
        self.pulled = 0

    def PushMessages(self, request: Any) -> Any:  # noqa: N802 - Flower's name
        ids = [message.metadata.message_id for message in request.messages_list]
        return PushAppMessagesResponse(message_ids=ids, objects_to_push=[], session_id="")

    def PushObject(self, request: Any) -> Any:  # noqa: N802
        raise AssertionError("no object has been asked for")

    def PullMessages(self, request: Any) -> Any:  # noqa: N802
        asked = [m for m in self.messages if m.metadata.message_id in request.message_ids]
        replies, trees = [], []
        for message in asked:
            size = self.sizes[message.metadata.dst_node_id]
            values = np.frombuffer(np.random.default_rng(0).bytes(size), np.uint8)
            content = RecordDict({"arrays": ArrayRecord({"a": Array(values)})})
            reply = Message(content, reply_to=message)
            reply.metadata.__dict__["_message_id"] = reply.object_id
            trees.append(get_object_tree(reply))
            self.objects |= {k: o.deflate() for k, o in get_all_nested_objects(reply).items()}
            replies.append(message_to_proto(remove_content_from_message(reply)))
        return PullAppMessagesResponse(messages_list=replies, message_object_trees=trees)

    def PullObject(self, request: Any) -> Any:  # noqa: N802
        content = self.objects[request.object_id]
        self.pulled += len(content)
        return PullObjectResponse(object_found=True, object_available=True, object_content=content)

    def ConfirmMessageReceived(self, request: Any) -> None:  # noqa: N802
        pass


ARRAYS = ArrayRecord({"a": Array(np.zeros(SIZE, np.uint8))})


def sent_back(sizes: dict[int, int]) -> tuple[SuperLink, dict[int, Any]]:
    """Ask nodes for so many bytes each, with a message of fewer."""
    new_run({})
    grid = HttpGrid(token="a token")
    superlink: Any = SuperLink(sizes)
    grid._client, grid._run = superlink, SimpleNamespace(run_id=1)
    messages = [Message(RecordDict({"arrays": ARRAYS}), node, "train") for node in sizes]
    superlink.messages = messages
    replies = exchange(grid, messages, silence=5.0)
    return superlink, {reply.metadata.src_node_id: reply for reply in replies}


def test_a_reply_larger_than_any_is_refused_before_it_is_in_memory() -> None:
    most = ALLOWANCE + TIMES * ARRAYS.count_bytes()
    superlink, replies = sent_back({1: 2 * SIZE, 2: 2 * most})
    arrays: Any = replies[1].content["arrays"]
    assert arrays["a"].numpy().size == 2 * SIZE
    assert replies[2].has_error()
    assert f"more than {most:,} bytes" in replies[2].error.reason
    # Two pieces may be on their way at a time.
    assert superlink.pulled < most + 3 * PIECE


class SlowLength(bytes):
    """A piece that takes its time to be counted, so that two threads count at once."""

    def __len__(self) -> int:
        time.sleep(0.05)
        return super().__len__()


def test_two_threads_that_count_at_once_lose_no_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    def pull(object_ids: list[str], counted: Any) -> list[Any]:
        with ThreadPoolExecutor(2) as threads:
            pulled = [threads.submit(counted, each) for each in object_ids]
        return [each.exception() for each in pulled]

    grid = SimpleNamespace(pull_objects=pull, ObjectPullError=ObjectPullError)
    monkeypatch.setitem(sys.modules, "flwr.superlink.grid.http_grid", grid)
    with replies_up_to(3):
        found = grid.pull_objects(["a", "b"], lambda name: SlowLength(b"xx"))
        assert sum(each is not None for each in found) >= 1
        assert all("more than 3 bytes" in str(each) for each in found if each)
        asked: list[str] = []

        def four(name: str) -> bytes:
            asked.append(name)
            return SlowLength(b"xxxx")

        grid.pull_objects(["a", "b", "c", "d", "e"], four)
        assert len(asked) <= 2, "once there are too many, no further piece is pulled"
    assert grid.pull_objects is pull


def test_the_outlines_that_the_proxy_takes_are_those_of_300_gb() -> None:
    def outline(pieces: int) -> int:
        values = np.frombuffer(np.random.default_rng(0).bytes(pieces * PIECE), np.uint8)
        content = RecordDict({"arrays": ArrayRecord({"a": Array(values)})})
        return len(get_object_tree(Message(content, 1, "train")).SerializeToString())

    new_run({})
    each = (outline(4) - outline(2)) / 2
    assert MOST_BYTES["push-messages"] / each * PIECE > 300e9
