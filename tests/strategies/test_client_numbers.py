"""Numbers that a client cannot have measured: told, and left out of a round's means."""

import pytest
from flwr.app import RecordDict
from small_federation import play

from bfl.federation.wire import TrainTask, reply_content
from bfl.posteriors import Posterior


@pytest.mark.parametrize(
    ("name", "honest", "lie"),
    [
        ("accuracy", 0.5, 1e30),
        ("test-accuracy", 0.5, 1.5),
        ("meme-brier-score", 1.5, 2.5),
        ("personal-expected-calibration-error", 0.25, -0.25),
        ("meme-retention-area-accuracy-predictive-entropy", 0.75, 1e30),
        ("better-accuracy", 1.0, -1e-3),
        ("negative-log-likelihood", 3.0, -1e30),
        ("train-negative-log-likelihood", 3.0, -1e30),
        ("train-negative-log-likelihood", -5.9, -6.1),  # of numbers, it is a density's
        ("train-seconds", 2.0, -1e30),
        ("train-steps", 3.0, 0.5),
        ("train-steps", 3.0, 0.0),
    ],
)
def test_a_number_that_cannot_be_does_not_reach_the_mean(
    name: str, honest: float, lie: float
) -> None:
    """One client could move the others' mean wherever it liked."""

    def talking(task: TrainTask, received: Posterior) -> RecordDict:
        value = lie if task.partition_id == 2 else honest
        # The better of two accuracies is one of them.
        return reply_content(received, {"num-examples": 5, "meme-accuracy": 1.0, name: value})

    _, rounds, told = play(talking, rounds=2)
    for finished in rounds:
        assert finished.metrics[f"client/{name}"] == honest
        assert (finished.metrics["clients"], finished.metrics["refused"]) == (4, 0)
    said = f"says what cannot be, left out of means: {name} {lie:g}"
    assert told == [f"round 1, client 2: {said}", f"round 2, client 2: {said} (as before)"]
