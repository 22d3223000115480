"""Messages and replies: what is handed on when, and who is asked again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from small_federation import make_grid

import strategies.exchange
from bfl.engine.serial import SerialGrid
from bfl.errors import RunError
from strategies.exchange import exchange, exchange_with_retries


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


def ask(
    clients: Clients,
    count: int = 4,
    *,
    enough: Callable[[int], bool] = lambda good: False,
    retries: int = 2,
    cls: type[SerialGrid] = SerialGrid,
    silence: float = 10.0,
) -> tuple[list[tuple[int, bool]], list[tuple[int, str]]]:
    reported: list[tuple[int, str]] = []
    replies = exchange_with_retries(
        make_grid(clients.app, count, cls),
        messages(count),
        silence=silence,
        retries=retries,
        enough=enough,
        report=lambda node, reason: reported.append((node, reason)),
    )
    return outcome(replies), reported


def test_replies_are_handed_on_before_the_next_client_is_asked() -> None:
    clients = Clients()
    for number, reply in enumerate(exchange(make_grid(clients.app, 5), messages(5), 10.0), 1):
        assert reply.metadata.src_node_id == number
        assert clients.asked == list(range(1, number + 1))


def test_those_that_fail_are_asked_again_and_nobody_else() -> None:
    clients = Clients({2: 1, 3: 2})
    replies, reported = ask(clients)
    assert replies == [(1, True), (4, True), (2, True), (3, True)]
    assert clients.asked == [1, 2, 3, 4, 2, 3, 3]
    assert [node for node, _ in reported] == [2, 3, 3]
    assert "node 3 is out of memory" in reported[1][1]


def test_the_last_failure_is_handed_on_and_not_reported() -> None:
    clients = Clients({2: 9})
    replies, reported = ask(clients, retries=1)
    assert replies == [(1, True), (3, True), (4, True), (2, False)]
    assert [node for node, _ in reported] == [2]
    assert clients.asked.count(2) == 2


def test_a_failure_is_handed_on_as_soon_as_there_are_enough() -> None:
    """So that those that wait for it, in the order of partitions, need not wait for the end."""
    clients = Clients({1: 9, 4: 9})
    replies, reported = ask(clients, 5, enough=lambda good: good >= 2)
    assert replies == [(2, True), (3, True), (1, False), (4, False), (5, True)]
    assert not reported
    assert clients.asked == [1, 2, 3, 4, 5]


def test_what_is_enough_in_the_second_attempt_counts_the_first() -> None:
    clients = Clients({1: 1, 2: 9, 3: 9})
    replies, _ = ask(clients, 4, enough=lambda good: good >= 2)
    assert replies == [(4, True), (1, True), (2, False), (3, False)]
    assert clients.asked == [1, 2, 3, 4, 1, 2, 3]


def test_nobody_is_asked_twice_when_all_reply() -> None:
    clients = Clients()
    assert ask(clients)[0] == [(node, True) for node in (1, 2, 3, 4)]
    assert clients.asked == [1, 2, 3, 4]


class Deaf(SerialGrid):
    """A grid that loses what node 2 says, and counts how often it is asked."""

    pull_interval = 0.01
    pulls = 0

    def pull_messages(self, message_ids: Any) -> Any:
        type(self).pulls += 1
        replies = super().pull_messages(message_ids)
        return [reply for reply in replies if reply.metadata.src_node_id != 2]


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
    monkeypatch.setattr(strategies.exchange, "time", clock)
    return clock


def test_waiting_takes_little_of_the_time(clock: Clock) -> None:
    """Looking is made rarer when it is slow: with many messages, looking itself is the work."""

    class Slow(Deaf):
        pulls = 0

        def pull_messages(self, message_ids: Any) -> Any:
            clock.sleep(0.02)
            return super().pull_messages(message_ids)

    assert outcome(exchange(make_grid(Clients().app, 2, Slow), messages(2), 1.0)) == [(1, True)]
    assert clock.now > 1.0
    assert Slow.pulls * 0.02 < 0.25 * clock.now
    assert Slow.pulls > 1 / strategies.exchange.LONGEST_PAUSE / 2


def test_who_takes_long_is_looked_for_rarely(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Two hundred looks a second would take a share of the processors that clients train on."""

    class Busy(Deaf):
        pulls = 0

    monkeypatch.setattr(strategies.exchange, "poll_interval", lambda grid: 0.001)
    assert outcome(exchange(make_grid(Clients().app, 2, Busy), messages(2), 1.0)) == [(1, True)]
    # Pauses of 2 % of the time so far: from 0.05 to 1 s about ln(20) / 0.02 looks, and 50 before.
    assert 20 < Busy.pulls < 300


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
