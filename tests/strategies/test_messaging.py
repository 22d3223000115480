"""Messages and replies: what is handed on when, in which order, and who is asked again."""

import gc
import weakref
from collections.abc import Callable, Iterable, Iterator
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from deployment_grid import FIRST_ID, DeploymentGrid
from flwr.app import Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from small_federation import make_grid

import strategies.flower_clients
from bfl.engine.serial import SerialGrid
from bfl.errors import RunError
from bfl.federation.wire import RUN_CANNOT_GO_ON
from bfl.posteriors import Posterior
from strategies.flower_clients import UsableReplies, exchange, exchange_with_retries, in_order
from strategies.updates import ClientUpdate


class Clients:
    """Clients that note when they are asked and fail as often as told, by node id."""

    def __init__(self, failures: dict[int, int] | None = None) -> None:
        self.failures = dict(failures or {})
        self.asked: list[int] = []
        self.app = ClientApp()

        @self.app.train()
        def train(message: Message, context: Context) -> Message:
            self.asked.append(context.node_id)
            if self.failures.get(context.node_id, 0):
                self.failures[context.node_id] -= 1
                raise RuntimeError(f"node {context.node_id} is out of memory")
            content = RecordDict({"metrics": MetricRecord({"node": context.node_id})})
            return Message(content, reply_to=message)


def messages(count: int) -> list[Message]:
    return [Message(RecordDict(), node, "train", group_id="3") for node in range(1, count + 1)]


def outcome(replies: Iterable[Message]) -> list[tuple[int, bool]]:
    """Return the node and whether it has succeeded, in the order of arrival."""
    return [(reply.metadata.src_node_id, reply.has_content()) for reply in replies]


def counted(
    replies: Iterable[Message],
    usable: UsableReplies,
    use: Callable[[Message], bool] = Message.has_content,
) -> Iterator[Message]:
    """Hand replies on, and count those that are of use."""
    for reply in replies:
        usable.found += use(reply)
        yield reply


def ask(
    clients: Clients,
    count: int = 4,
    *,
    needed: int = 99,
    use: Callable[[Message], bool] = Message.has_content,
    retries: int = 2,
    cls: type[SerialGrid] = SerialGrid,
    silence: float = 10.0,
) -> tuple[list[tuple[int, bool]], list[tuple[int, str]]]:
    reported: list[tuple[int, str]] = []
    usable = UsableReplies(needed)
    replies = exchange_with_retries(
        make_grid(clients.app, count, cls),
        messages(count),
        silence=silence,
        retries=retries,
        usable=usable,
        report=lambda node, reason: reported.append((node, reason)),
    )
    return outcome(counted(replies, usable, use)), reported


@pytest.mark.parametrize(
    ("failures", "count", "given", "replies", "asked", "reported"),
    [
        # Those that fail are asked again, and nobody else.
        ({2: 1, 3: 2}, 4, {}, [1, 4, 2, 3], [1, 2, 3, 4, 2, 3, 3], [2, 3, 3]),
        # The last failure is handed on and not reported.
        ({2: 9}, 4, {"retries": 1}, [1, 3, 4, -2], [1, 2, 3, 4, 2], [2]),
        # One is handed on as soon as there are enough: who waits for it need not wait for the end.
        ({1: 9, 4: 9}, 5, {"needed": 2}, [2, 3, -1, -4, 5], [1, 2, 3, 4, 5], []),
        # What is enough in the second attempt counts the first.
        ({1: 1, 2: 9, 3: 9}, 4, {"needed": 2}, [4, 1, -2, -3], [1, 2, 3, 4, 1, 2, 3], [1, 2, 3]),
    ],
)
def test_those_that_fail_are_asked_again_until_there_are_enough(
    failures: dict[int, int],
    count: int,
    given: dict[str, int],
    replies: list[int],
    asked: list[int],
    reported: list[int],
) -> None:
    clients = Clients(failures)
    found, reasons = ask(clients, count, **given)  # type: ignore[arg-type]
    assert [node if good else -node for node, good in found] == replies
    assert clients.asked == asked
    assert [node for node, _ in reasons] == reported
    assert all(f"node {node} is out of memory" in reason for node, reason in reasons)


class Deaf(SerialGrid):
    """A grid that loses what node 2 says, and counts how often it is asked."""

    pull_interval = 0.01
    pulls = 0

    def pull_messages(self, message_ids: Any) -> Any:
        type(self).pulls += 1
        replies = super().pull_messages(message_ids)
        return [reply for reply in replies if reply.metadata.src_node_id != 2]


@pytest.mark.usefixtures("clock")
def test_a_client_that_is_silent_is_given_up_and_handed_on_as_a_failure() -> None:
    clients = Clients()
    replies, reported = ask(clients, 3, retries=1, cls=Deaf, silence=0.05)
    assert replies == [(1, True), (3, True), (2, False)]
    assert reported == [(2, "no reply for 0.05 s (client-timeout)")]


class Clock:
    """A clock that only waiting moves on."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(strategies.flower_clients, "time", clock)
    return clock


def test_the_silence_begins_anew_with_every_reply(clock: Clock) -> None:
    class OneByOne(SerialGrid):
        pull_interval = 0.01

        looks = 0

        def pull_messages(self, message_ids: Any) -> Any:
            clock.sleep(0.4)
            self.looks += 1
            if self.looks % 2:
                return []
            return super().pull_messages([min(message_ids, key=order.__getitem__)])

        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            ids = list(super().push_messages(messages))
            order.update({message_id: place for place, message_id in enumerate(ids)})
            return ids

    order: dict[str, int] = {}
    replies = exchange(make_grid(Clients().app, 4, OneByOne), messages(4), 1.0)
    assert outcome(replies) == [(node, True) for node in (1, 2, 3, 4)]
    assert clock.now > 3.0  # and never more than 1 s without a reply


def test_a_dead_engine_ends_the_wait() -> None:
    grid = make_grid(Clients().app, 2, Deaf)
    waiting = exchange(grid, messages(2), 60.0)
    assert next(waiting).metadata.src_node_id == 1
    grid.engine_run.end("power cut")
    with pytest.raises(RunError, match="power cut"):
        next(waiting)
    # That of another run is not concerned, and this one does not come to life again.
    assert len(list(exchange(make_grid(Clients().app, 2), messages(2), 60.0))) == 2
    with pytest.raises(RunError, match="power cut"):
        list(exchange(grid, messages(2), 60.0))


def deployed(count: int) -> tuple[DeploymentGrid, Clients, list[Message]]:
    clients = Clients()
    grid = DeploymentGrid(clients.app, range(count), count)
    return grid, clients, [Message(RecordDict(), node, "train") for node in grid.get_node_ids()]


def test_a_reply_that_flower_makes_is_the_failure_of_the_node_that_was_asked() -> None:
    grid, _, sent = deployed(3)
    grid.kill(FIRST_ID + 1)
    replies = list(exchange(grid, sent, 10.0))
    assert outcome(replies) == [(FIRST_ID, True), (FIRST_ID + 1, False), (FIRST_ID + 2, True)]
    assert replies[1].error.reason == "Error: Node Unavailable"


def test_what_a_failed_client_says_is_for_no_terminal() -> None:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        reason = "no\x1b[2J\n[   9.9 s] round 9/9  accuracy 1.0"
        return Message(Error(code=2, reason=reason), reply_to=message)

    [reply] = exchange(make_grid(app, 1), messages(1), 10.0)
    assert reply.metadata.src_node_id == 1
    shown = "no\\x1b[2J\n    | [   9.9 s] round 9/9  accuracy 1.0"
    assert reply.error.reason == shown


@pytest.mark.parametrize("returned", ["", None])
def test_a_message_that_is_not_taken_is_a_failure_at_once(returned: str | None) -> None:
    """The HTTP grid returns an empty id for it, the one in memory leaves the id out; of messages
    that are too large together, none is taken.
    """
    grid, _, sent = deployed(3)
    grid.unregistered = {FIRST_ID + 2}
    if returned is None:
        push = grid.push_messages
        grid.push_messages = lambda m: [i for i in push(m) if i]  # type: ignore[method-assign]
    replies = list(exchange(grid, sent, 3600.0))  # who waited for it would wait for an hour
    assert outcome(replies) == [(FIRST_ID + 2, False), (FIRST_ID, True), (FIRST_ID + 1, True)]
    assert "Flower has not taken the message" in str(replies[0].error.reason)
    grid.push_messages = lambda m: []  # type: ignore[method-assign]
    assert [good for _, good in outcome(exchange(grid, deployed(2)[2], 10.0))] == [False, False]


def test_a_node_that_is_gone_is_asked_again_and_told_by_its_own_id() -> None:
    grid, clients, sent = deployed(3)
    grid.kill(FIRST_ID)
    reported: list[int] = []
    given: Any = {"silence": 10.0, "retries": 2, "usable": (usable := UsableReplies(3))}
    replies = exchange_with_retries(
        grid, sent, **given, report=lambda node, reason: reported.append(node)
    )
    found = outcome(counted(replies, usable))
    assert found == [(FIRST_ID + 1, True), (FIRST_ID + 2, True), (FIRST_ID, False)]
    assert reported == [FIRST_ID, FIRST_ID]
    assert clients.asked == [FIRST_ID + 1, FIRST_ID + 2]


def test_a_node_that_answers_in_the_place_of_another_is_not_believed() -> None:
    grid, _, sent = deployed(2)
    answer = grid._answer

    def as_another(message: Message) -> Message:
        reply = answer(message)
        reply.metadata.__dict__["_src_node_id"] = FIRST_ID
        return reply

    grid._answer = as_another  # type: ignore[method-assign]
    assert outcome(exchange(grid, sent, 10.0)) == [(FIRST_ID, True), (FIRST_ID + 1, False)]


@pytest.mark.parametrize("simulated", [True, False])
def test_only_a_simulated_client_can_end_the_run(
    simulated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return Message(Error(RUN_CANNOT_GO_ON, "no shared folder"), reply_to=message)

    monkeypatch.setattr(strategies.flower_clients, "is_simulation", lambda grid: simulated)
    replies = exchange(make_grid(app, 1), messages(1), 10.0)
    if simulated:
        with pytest.raises(RunError, match="no shared folder"):
            list(replies)
    else:
        assert outcome(replies) == [(1, False)]


def update(partition_id: int) -> ClientUpdate:
    posterior = Posterior(np.zeros(1), np.ones(1), np.zeros(0))
    return ClientUpdate(partition_id, posterior, 5, {"id": partition_id})


def test_any_order_of_arrival_gives_the_order_of_partitions() -> None:
    for order in permutations([1, 3, 4, 7]):
        found = in_order(((p, update(p)) for p in order), [1, 3, 4, 7])
        assert [u.partition_id for u in found] == [1, 3, 4, 7]


@pytest.mark.parametrize(
    ("arriving", "failed", "found"),
    [
        ((1, 2, 0, 3, 5, 4), (), [(0, 3), (1, 3), (2, 3), (3, 4), (4, 6), (5, 6)]),
        ((0, 1, 2, 3), (0, 2), [(1, 2), (3, 4)]),  # one without an update holds nobody up
        ((3, 1), (), [(1, 2), (3, 2)]),  # nor one that is never heard of
    ],
)
def test_updates_come_out_as_soon_as_their_turn_comes(
    arriving: tuple[int, ...], failed: tuple[int, ...], found: list[tuple[int, int]]
) -> None:
    heard: list[int] = []

    def updates() -> Iterator[tuple[int, ClientUpdate | None]]:
        for partition_id in arriving:
            heard.append(partition_id)
            yield partition_id, None if partition_id in failed else update(partition_id)

    clients = list(range(max(arriving) + 1))
    assert [(u.partition_id, len(heard)) for u in in_order(updates(), clients)] == found


@pytest.mark.usefixtures("quick_collections")
def test_whoever_takes_an_update_is_the_only_one_to_hold_it() -> None:
    alive: list[weakref.ref[Any]] = []

    def updates() -> Iterator[tuple[int, ClientUpdate | None]]:
        for partition_id in range(20):
            gc.collect()
            assert sum(ref() is not None for ref in alive) <= 1
            yield partition_id, update(partition_id)

    for got in in_order(updates(), list(range(20))):
        alive.append(weakref.ref(got.posterior))
    assert len(alive) == 20
