"""What a round's record says of each client: of the accepted updates, with the weights used."""

import numpy as np
import pytest
from flwr.app import RecordDict
from small_federation import play

from bfl.federation.wire import TrainTask, reply_content
from bfl.posteriors import Posterior

BEGUN = Posterior(np.zeros(3, np.float32), np.ones(3, np.float32))


def reply(task: TrainTask, received: Posterior) -> RecordDict:
    """Client 1 sends what is refused; client 2 has test data; all measure something unknown."""
    k = task.partition_id
    mean = received.mean + np.float32(np.nan if k == 1 else k)
    own = {"test-accuracy": 0.5, "test-examples": 8} if k == 2 else {}
    metrics: dict[str, float | int] = {
        "num-examples": 10 * (k + 1),
        "train-negative-log-likelihood": 0.1 * k,
        "train-divergence": 100.0 + k,
        "train-seconds": 1.0,
        "weight": 99.0,
        "client": 7,
        "of-my-own": 3.0,
        **own,
    }
    return reply_content(Posterior(mean, received.variance, received.point), metrics)


@pytest.mark.parametrize("foreseen", [True, False])
@pytest.mark.parametrize("strategy", ["nwa", "conflation", "ppa"])
@pytest.mark.parametrize("weighting", ["train-size", "equal", "max-discrepancy"])
def test_each_accepted_update_has_an_entry_with_its_weight(
    weighting: str, strategy: str, foreseen: bool
) -> None:
    """The refused client has none, and no client writes what is not its to say.

    Where the server has assigned the examples it may know the weights before the replies, of which
    one is then missing.
    """
    partition = [np.arange(10 * (k + 1)) for k in range(4)] if foreseen else None
    method = {"rule": strategy, "weighting": weighting}
    for finished in play(reply, start=BEGUN, rounds=2, partition=partition, **method)[1]:
        entries = finished.clients
        assert [entry["client"] for entry in entries] == [0, 2, 3]
        assert [entry["num-examples"] for entry in entries] == [10, 30, 40]
        weights = [entry["weight"] for entry in entries]
        assert sum(weights) == pytest.approx(1.0)
        if weighting == "train-size":
            np.testing.assert_allclose(weights, [1 / 8, 3 / 8, 4 / 8])
        elif weighting == "equal":
            np.testing.assert_allclose(weights, [1 / 3] * 3)
        for entry in entries:
            k = entry["client"]
            assert entry["train-negative-log-likelihood"] == pytest.approx(0.1 * k)
            assert entry["train-divergence"] == 100.0 + k
            assert "of-my-own" not in entry
            assert ("test-accuracy" in entry) == (k == 2)
        assert entries[1]["test-accuracy"] == 0.5
