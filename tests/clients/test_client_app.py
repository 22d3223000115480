"""What a node says of itself, and what it refuses whatever the server says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flwr.app import Context, Message, RecordDict

from bfl.engine.flower import new_run
from bfl.federation.wire import NodeDescription, TrainTask
from clients.client_app import describe, train

NODE = {"partition-id": 1, "num-partitions": 3}
NOTHING_TO_DO = "has no examples"
HOSTILE = {"attack": "sign-flip", "attackers": 2}


def ask(work: Any, content: RecordDict, **config: Any) -> Message:
    run = new_run({})
    context = Context(
        run_id=run.run_id,
        node_id=1,
        node_config={**NODE, **config},
        state=RecordDict(),
        run_config={},
    )
    return work(Message(content, 1, "train"), context)  # type: ignore[no-any-return]


def task(partition_id: int, **values: Any) -> RecordDict:
    """Return a task without examples: what is not refused fails for want of these."""
    config = TrainTask(1, partition_id, json.dumps(values), 10, None).to_config()
    return RecordDict({"config": config})


def reason(content: RecordDict, **config: Any) -> str:
    return str(ask(train, content, **config).error.reason)


@pytest.mark.parametrize(
    ("config", "allows", "keeps"),
    [
        ({}, False, False),
        ({"allow-attack": True}, True, False),
        ({"state-dir": "/var/lib/x"}, False, True),
        ({"simulation": True}, True, True),
    ],
)
def test_a_node_says_what_it_would_do(config: Any, allows: bool, keeps: bool) -> None:
    said = NodeDescription.from_content(ask(describe, RecordDict(), **config).content)
    assert (said.partition_id, said.num_partitions) == (1, 3)
    assert (said.allows_attack, said.keeps_state) == (allows, keeps)


def test_a_wrong_type_is_refused() -> None:
    reply = ask(describe, RecordDict(), **{"allow-attack": "true"})
    assert "allow-attack is 'true'; allowed: true or false" in reply.error.reason


def test_a_nodes_personal_model_is_one_that_there_is() -> None:
    reply = ask(describe, RecordDict(), **{"personal-model": "cnn7"})
    assert "personal-model is 'cnn7'" in reply.error.reason
    assert not ask(describe, RecordDict(), **{"personal-model": "cnn1"}).has_error()


def test_a_supernode_plays_no_hostile_client() -> None:
    said = reason(task(1, **HOSTILE))
    assert "attack is 'sign-flip' for partition 1, and this node does not play" in said
    assert "allow-attack=true" in said


@pytest.mark.parametrize(
    ("values", "config"),
    [
        (HOSTILE, {"allow-attack": True}),
        (HOSTILE, {"simulation": True}),
        ({**HOSTILE, "attackers": 1}, {}),  # another partition is hostile
        ({"attackers": 2}, {}),  # and here nobody is
    ],
)
def test_what_is_allowed_is_not_refused(values: Any, config: Any) -> None:
    assert NOTHING_TO_DO in reason(task(1, **values), **config)


def test_another_clients_task_is_refused() -> None:
    assert "plays partition 1 and is asked for partition 2" in reason(task(2))
    # The virtual client that pre-trains is behind the last one.
    assert NOTHING_TO_DO in reason(task(3))
