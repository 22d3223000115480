"""Replies over Flower's own grid: too large, late, dripped, and of bytes that make no message."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import ObjectTree, PullObjectResponse
from flwr.proto.runtime_pb2 import PullAppMessagesResponse, PushAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid

import bfl.engine.flower.replies
import strategies.flower_clients
from bfl.deployment.proxy import MOST_BYTES
from bfl.engine.flower import new_run
from bfl.errors import ProtocolError
from bfl.federation.secure_aggregation.messages import SECURE, Fields, Shares, read_masked_vector
from bfl.federation.wire import posterior_to_arrays
from bfl.posteriors import Posterior
from strategies.flower_clients import ALLOWANCE, TIMES, exchange
from strategies.updates import RefusedUpdateError, read_update

PIECE, SIZE = 5 * 2**20, 2**18

MUTATIONS = 10_000

Answers = dict[int, Callable[[Message], Message]]


class Clock:
    """A clock that waiting moves on, and a look at it a little."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1e-4
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def run() -> Any:
    return new_run({})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (strategies.flower_clients, bfl.engine.flower.replies):
        monkeypatch.setattr(module, "time", clock)
    return clock


@cache
def taken_apart(reply: Message) -> tuple[dict[str, bytes], ObjectTree]:
    """Return what a node uploads, and what it announces."""
    reply.metadata.__dict__["_message_id"] = reply.object_id
    parts = get_all_nested_objects(reply).items()
    return {name: part.deflate() for name, part in parts}, get_object_tree(reply)


class SuperLink:
    """In the place of Flower's client of the runtime API.

    Args:
        answers: What each node says to a message.
        clock: By which it is uploaded.

    Attributes:
        uploads: When each piece of a node's reply is uploaded, the message itself being the first.
        took: Seconds in which a piece is pulled.
        spoil: What becomes of the pieces' contents, the message itself being the last.
    """

    def __init__(self, answers: Answers, clock: Clock | None = None) -> None:
        self.answers = answers
        self.clock = clock or Clock()
        self.uploads: dict[int, Callable[[int], float]] = {}
        self.took = 0.0
        self.spoil: Callable[[dict[str, bytes]], dict[str, bytes]] = dict
        self.messages: list[Message] = []
        self.pieces: dict[str, tuple[float, bytes]] = {}
        self.pulled = 0

    PushObject = None  # no object is asked for

    def PushMessages(self, request: Any) -> Any:  # noqa: N802 - Flower's name
        ids = [message.metadata.message_id for message in request.messages_list]
        return PushAppMessagesResponse(message_ids=ids, objects_to_push=[], session_id="")

    def PullMessages(self, request: Any) -> Any:  # noqa: N802
        replies, trees = [], []
        # Flower up to 1.42, and after it.
        ids = getattr(request, "message_ids", None) or request.reply_to_message_ids.vals
        for message in [m for m in self.messages if m.metadata.message_id in ids]:
            self.messages.remove(message)  # it is told once
            node = message.metadata.dst_node_id
            reply = self.answers[node](message)
            pieces, tree = taken_apart(reply)
            pieces = self.spoil(pieces)
            when = self.uploads.get(node, lambda number: 0.0)
            for number, (name, content) in enumerate(reversed(pieces.items())):
                self.pieces[name] = when(number), content
            trees.append(tree)
            replies.append(message_to_proto(remove_content_from_message(reply)))
        return PullAppMessagesResponse(messages_list=replies, message_object_trees=trees)

    def PullObject(self, request: Any) -> Any:  # noqa: N802
        self.clock.sleep(self.took)
        when, content = self.pieces[request.object_id]
        there = self.clock.monotonic() >= when
        content = content if there else b""
        self.pulled += len(content)
        return PullObjectResponse(object_found=True, object_available=there, object_content=content)

    def ConfirmMessageReceived(self, request: Any) -> None:  # noqa: N802
        pass


ARRAYS = ArrayRecord({"a": Array(np.zeros(SIZE, np.uint8))})


def numbers(size: int) -> Callable[[Message], Message]:
    """Return what answers with so many bytes, others for each node."""

    def answer(message: Message) -> Message:
        generator = np.random.default_rng(message.metadata.dst_node_id)
        values = np.frombuffer(generator.bytes(size), np.uint8)
        return Message(RecordDict({"arrays": ArrayRecord({"a": Array(values)})}), reply_to=message)

    return answer


def many(arrays: int) -> Callable[[Message], Message]:
    """Return what answers with so many small arrays."""
    values = ArrayRecord({f"{i}": Array(np.full(2, i, np.float32)) for i in range(arrays)})
    return lambda message: Message(RecordDict({"arrays": values}), reply_to=message)


def asked(
    superlink: Any, messages: list[Message] | None = None, silence: float = 5.0
) -> Iterator[Message]:
    """Ask all nodes, by default with ``SIZE`` bytes, and return their replies as they come."""
    grid = HttpGrid(token="a token")
    grid._client, grid._run = superlink, Run.create_empty(TaskIdentity.run_id)
    content = RecordDict({"arrays": ARRAYS})
    messages = messages or [Message(content, node, "train") for node in superlink.answers]
    superlink.messages = list(messages)
    return exchange(grid, messages, silence)


def test_a_reply_larger_than_any_is_refused_before_it_is_in_memory() -> None:
    most = ALLOWANCE + TIMES * ARRAYS.count_bytes()
    superlink = SuperLink({1: numbers(2 * SIZE), 2: numbers(2 * most)})
    replies = {reply.metadata.src_node_id: reply for reply in asked(superlink)}
    arrays: Any = replies[1].content["arrays"]
    assert arrays["a"].numpy().size == 2 * SIZE
    assert replies[2].has_error()
    assert f"more than {most:,} bytes" in replies[2].error.reason
    # Two pieces may be on their way at a time.
    assert superlink.pulled < most + 3 * PIECE


def repeated(times: int) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    """Return what has each array name its first piece so many times."""

    def spoil(pieces: dict[str, bytes]) -> dict[str, bytes]:
        spoiled = dict(pieces)
        for name, content in pieces.items():
            if content.startswith(b"Array "):
                head, _, body = content.partition(b"\0")
                lie = json.dumps({**json.loads(body), "arraychunk_ids": [0] * times}).encode()
                start = b" ".join([*head.split(b" ")[:2], b"%d" % len(lie)])
                spoiled[name] = start + b"\0" + lie
        return spoiled

    return spoil


def test_an_array_that_repeats_a_piece_is_as_large_as_what_it_makes() -> None:
    """Of two arrays as well, each below the bound; zeros are repeated honestly."""
    arrays = {name: Array(np.full(PIECE // 2, i, np.uint8)) for i, name in enumerate("ab")}
    content = RecordDict({"arrays": ArrayRecord(arrays)})
    most = ALLOWANCE + TIMES * ArrayRecord(arrays).count_bytes()
    superlink = SuperLink({1: lambda m: Message(content, reply_to=m)})
    for times, taken in ((1, True), (most // PIECE, True), (most // PIECE + 1, False)):
        superlink.spoil = repeated(times)
        [reply] = asked(superlink, [Message(content, 1, "train")])
        assert reply.has_content() == taken
    assert "no message" not in reply.error.reason
    assert f"more than {most:,} bytes, the most of a reply" in reply.error.reason


def test_honest_replies_do_not_wait_for_one_that_is_dripped(clock: Clock) -> None:
    """It is that client's failure when its time is over, and no piece begins it anew."""
    superlink = SuperLink({1: many(200), 2: numbers(SIZE), 3: numbers(SIZE)}, clock)
    superlink.uploads = {1: lambda number: float(number + 1), 3: lambda number: 20.0}
    replies = [(r, clock.now) for r in asked(superlink, silence=30.0)]
    found = [(reply.metadata.src_node_id, reply.has_content()) for reply, _ in replies]
    assert found == [(2, True), (3, True), (1, False)]
    assert replies[0][1] < 1
    assert replies[1][1] < 22
    assert 30 < replies[2][1] < 32
    assert "node 1" in replies[2][0].error.reason


POSTERIOR = Posterior(*(np.ones(3, np.float32) for _ in range(3)))
METRICS = MetricRecord({"num-examples": 7, "loss": 0.5, "list": [1.0, 2.0]})


def stage_of(said: Fields) -> tuple[RecordDict, Callable[[Message], Any], type[Exception]]:
    """Return a client's part in a stage of secure aggregation, and how it is read."""
    kind = type(said)
    content = RecordDict({SECURE: said.to_record()})
    return content, lambda reply: kind.from_content(reply.content), ProtocolError


KINDS: dict[str, tuple[RecordDict | Error, Callable[[Message], Any], type[Exception]]] = {
    "update": (
        RecordDict({"arrays": posterior_to_arrays(POSTERIOR), "metrics": METRICS}),
        lambda reply: read_update(reply, 0, POSTERIOR),
        RefusedUpdateError,
    ),
    "masked vector": (
        RecordDict({"arrays": ArrayRecord({"masked": Array(np.arange(3))}), "metrics": METRICS}),
        lambda reply: read_masked_vector(reply.content),
        ProtocolError,
    ),
    "shares": stage_of(Shares([1], [b"a"], [b"b"], [b"c"], [])),
}
"""What clients say in a run, how the server reads it, and as what it refuses it."""


def mutated(content: bytes, pieces: dict[str, bytes], random: Random) -> bytes:
    """Return the bytes of a piece changed: anywhere, in its head, in its body, or for another's."""
    others = list(pieces.values())
    head, _, body = content.partition(b"\0")
    kind, children = head.split(b" ")[:2]
    place = random.randrange(len(content))
    bodies = [b"", b"null", b"[]", b"{}", b'{"a": 1}']
    bodies += [b"[" * 20_000, b"\xff" * 9, b"9" * 5_000, body]
    heads = [*(other.partition(b"\0")[0].split(b" ")[0] for other in others), kind, b"Nothing"]
    if body.startswith(b"{"):
        values: dict[str, Any] = json.loads(body)
        name = random.choice([*values, "more"])
        said = [None, -1, 10**12, "float32", [2**40], [-1], [[1]], {}, *values.values()]
        bodies += 8 * [json.dumps({**values, name: random.choice(said)}).encode()]
    new = random.choice(bodies)
    names = [name.encode() for name in pieces]
    flipped = bytearray(content)
    flipped[place] ^= 1 << random.randrange(8)
    family = random.choice([b"", children[:64], b",".join([children, children]), *names])
    return random.choice(
        [
            b"",
            content[:place],
            bytes(flipped),
            content[:place] + random.randbytes(random.randrange(1, 9)) + content[place:],
            random.choice(others),
            random.randbytes(len(content)),
            b"%s %s %d\0%s" % (random.choice(heads), children, len(body), body),
            b"%s %s %d\0%s" % (kind, family, len(body), body),
            b"%s %s %d\0%s" % (kind, children, len(new), new),
            b"%s %s %d\0%s" % (kind, children, len(new), new),
        ]
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_reply_of_any_bytes_is_read_refused_or_its_nodes_failure(kind: str) -> None:
    said, read, refused = KINDS[kind]
    content = RecordDict({"config": ConfigRecord({"round": 1})})
    message = Message(content, 1, "train")
    answer = cache(lambda message: Message(said, reply_to=message))
    [reply] = asked(SuperLink({1: answer}), [message])
    read(reply)
    assert reply.has_error() == isinstance(said, Error)
    random, outcomes = Random(kind), Counter[str]()

    def spoil(pieces: dict[str, bytes]) -> dict[str, bytes]:
        names = random.choices(list(pieces), k=random.choice([1, 1, 1, 2]))
        return pieces | {name: mutated(pieces[name], pieces, random) for name in names}

    for _ in range(MUTATIONS // len(KINDS)):
        superlink = SuperLink({1: answer})
        superlink.spoil = spoil
        [reply] = asked(superlink, [message])
        assert reply.metadata.src_node_id == 1
        if reply.has_error():
            outcomes["failed"] += 1
            continue
        try:
            read(reply)
            outcomes["read"] += 1
        except refused:
            outcomes["refused"] += 1
    assert outcomes["failed"] > outcomes["read"]


def test_a_message_that_says_it_answers_another_one_is_not_believed() -> None:
    """What the SuperLink has checked is what it was told of the message, and not its bytes."""
    one, other = (Message(RecordDict({"a": MetricRecord({"a": i})}), 1, "train") for i in (1, 2))
    other.metadata.__dict__["_message_id"] = "ab" * 32
    lie = list(taken_apart(Message(RecordDict(), reply_to=other))[0].values())
    superlink = SuperLink({1: lambda message: Message(RecordDict(), reply_to=message)})
    superlink.spoil = lambda pieces: dict(zip(pieces, lie, strict=True))
    [reply] = asked(superlink, [one])
    assert reply.has_error()
    assert reply.metadata.reply_to_message_id == one.metadata.message_id


def test_the_outlines_that_the_proxy_takes_are_those_of_38_gb() -> None:
    def outline(pieces: int) -> int:
        values = np.frombuffer(np.random.default_rng(0).bytes(pieces * PIECE), np.uint8)
        content = RecordDict({"arrays": ArrayRecord({"a": Array(values)})})
        return len(get_object_tree(Message(content, 1, "train")).SerializeToString())

    each = (outline(4) - outline(2)) / 2
    most = MOST_BYTES["push-messages"] / each
    assert most * PIECE > 38e9
    # Flower's client gives up after 30 s, and 16,000 pieces took its SuperLink 23 s to read.
    assert most < 16_000
