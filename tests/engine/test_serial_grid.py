"""The serial grid: one reply at a time, to those who ask for it."""

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from bfl.engine.flower import new_run
from bfl.engine.serial import SerialGrid


def make(count: int = 4) -> tuple[SerialGrid, list[int]]:
    """Return a grid and the nodes that have been asked so far."""
    asked: list[int] = []
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        asked.append(context.node_id)
        if context.node_id == 3:
            raise RuntimeError("no")
        return Message(message.content, reply_to=message)

    return SerialGrid(app, count, new_run({}), {}), asked


def messages(*nodes: int) -> list[Message]:
    return [Message(RecordDict(), node, "train") for node in nodes]


def test_a_message_is_answered_when_its_reply_is_asked_for() -> None:
    grid, asked = make()
    ids = set(grid.push_messages(messages(2, 1, 4)))
    assert len(ids) == 3
    assert not asked
    for number, node in enumerate([2, 1, 4], 1):
        [reply] = grid.pull_messages(ids)
        assert reply.metadata.src_node_id == node
        assert reply.metadata.reply_to_message_id in ids
        assert len(asked) == number
    assert not list(grid.pull_messages(ids))


def test_each_gets_the_replies_to_its_own_messages() -> None:
    grid, asked = make()
    first, second = (list(grid.push_messages(messages(node))) for node in (1, 2))
    assert [reply.metadata.src_node_id for reply in grid.pull_messages(second)] == [2]
    assert [reply.metadata.src_node_id for reply in grid.pull_messages(first)] == [1]
    assert asked == [2, 1]
