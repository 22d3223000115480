"""Rounds that take longer than Flower keeps a message by itself."""

import datetime
from collections.abc import Iterable

import pytest
from flwr.app import Message, RecordDict
from flwr.server.superlink.linkstate import in_memory_linkstate
from in_memory_engine import Engine

from bfl.engine.flower import grid
from strategies.messaging import UsableReplies, exchange_with_retries

HOUR = 3600.0


class Days(Engine):
    """Clients that train for hours, one after the other: a look for replies takes as long."""

    def __init__(self, nodes: int, hours: float, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(nodes)
        self.waiting: list[Message] = []
        self.sent: list[Message] = []
        self.ahead, self.hours = datetime.timedelta(), datetime.timedelta(hours=hours)
        now, push, pull = in_memory_linkstate.now, self.grid.push_messages, self.grid.pull_messages
        monkeypatch.setattr(in_memory_linkstate, "now", lambda: now() + self.ahead)

        def pushed(messages: Iterable[Message]) -> Iterable[str]:
            self.sent.extend(messages := list(messages))
            return push(messages)

        def pulled(message_ids: Iterable[str]) -> Iterable[Message]:
            self.waiting += grid.new_messages(self.state)
            self.ahead += self.hours
            if self.waiting:
                self.answer(self.waiting.pop(0))
            return pull(message_ids)

        monkeypatch.setattr(self.grid, "push_messages", pushed)
        monkeypatch.setattr(self.grid, "pull_messages", pulled)

    def ask(self, timeout: float) -> list[bool]:
        """Ask all clients; return which of the replies are none, as they come."""
        replies = exchange_with_retries(
            self.grid,
            [Message(RecordDict(), node, "train", group_id="1") for node in self.nodes],
            silence=timeout,
            retries=1,
            usable=UsableReplies(len(self.nodes)),
            report=lambda node, reason: pytest.fail(f"asked again: {reason}"),
        )
        return [reply.has_error() for reply in replies]


def test_a_reply_after_half_a_day_is_an_update(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Days(1, 13.0, monkeypatch)
    assert engine.ask(14 * HOUR) == [False]


def test_clients_that_train_one_after_the_other_each_have_their_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Days(5, 13.0, monkeypatch)
    assert engine.ask(14 * HOUR) == [False] * 5
    assert all(message.metadata.ttl >= 5 * 14 * HOUR for message in engine.sent)


def test_a_message_lives_no_longer_than_the_round_can_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And half a day: a client that has hung does not train for all rounds that it has missed."""
    engine = Days(2, 0.1, monkeypatch)
    assert engine.ask(HOUR) == [False] * 2
    assert [message.metadata.ttl for message in engine.sent] == [12 * HOUR + 2 * HOUR] * 2
