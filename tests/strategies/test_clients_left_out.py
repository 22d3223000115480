"""Who is missing from a round stands in its record, and is told with what happens now."""

from typing import Any

from flwr.app import Error, RecordDict
from small_federation import play, shifted

from bfl.experiments.results.left_out import CLIENTS_LEFT_OUT, describe_left_out
from bfl.federation.wire import TrainTask
from bfl.posteriors import Posterior


def test_each_client_that_is_missing_is_recorded_by_name_and_reason() -> None:
    def reply(task: TrainTask, received: Posterior) -> RecordDict | Error:
        if task.partition_id == 1:
            return Error(code=2, reason="no reply for 5 s (client-timeout)")
        if task.partition_id == 2:
            raise RuntimeError("out of memory")
        return RecordDict() if task.partition_id == 3 else shifted(task, received)

    _, (done,), _ = play(reply, clients=4, min_clients=1, round_retries=0)
    assert [(entry["client"], entry["reason"]) for entry in done.left_out] == [
        (1, "stopped answering"),
        (2, "failed"),
        (3, "update refused"),
    ]


def test_rounds_without_a_client_are_told_in_one_line_and_too_few_in_another() -> None:
    def record(number: int, *names: str) -> dict[str, Any]:
        entries = [{"client": 0, "name": name, "reason": "failed"} for name in names]
        missing = {CLIENTS_LEFT_OUT: entries} if names else {}
        return {"round": number, "clients": 3 - len(names), **missing}

    rounds = [record(1, "a"), record(2), record(3, "a"), record(4, "a", "b")]
    a, b, few = describe_left_out(rounds)
    assert a == "rounds 1, 3 and 4 without a (failed)"
    assert b == "round 4 without b (failed)"
    assert "1 of 3" in few
    assert describe_left_out(rounds[:2]) == ["round 1 without a (failed)"]
    assert not describe_left_out([])
