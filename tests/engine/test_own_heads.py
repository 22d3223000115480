"""Clients with tasks and heads of their own in whole runs with small real networks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import RecordDict
from runs_in_process import (
    check_same_states,
    interrupt,
    make_run,
    snapshots_of,
    watch_training,
    watch_updates,
)

from bfl.experiments.results.run_folder import RunFolder
from bfl.federation import wire
from bfl.federation.wire import extra_arrays, posterior_from_arrays
from bfl.learning.training import LocalTask
from bfl.learning.training.trainer import LocalTrainer
from bfl.posteriors.posterior import VECTORS

CLIENTS, ROUNDS = 3, 3
CLASSES = (3, 3, 5)
"""Of each client's task."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return a configuration with two tasks of a few images of 16 x 16 pixels."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    for name, classes in (("few", 3), ("many", 5)):
        images, labels = (
            rng.integers(0, 256, (60, 16, 16, 1), dtype=np.uint8),
            np.arange(60) % classes,
        )
        np.savez(
            folder / f"{name}.npz",
            x_train=images[:40],
            y_train=labels[:40],
            x_test=images[40:],
            y_test=labels[40:],
        )
    return {
        "dataset": f"tasks:npz:{folder}/few.npz:2,npz:{folder}/many.npz:1",
        "strategy": "hbfl",
        "shared": "convolutions",
        "evaluated-by": "clients",
        "model": "cnn1",
        "personal-models": "lenet5:2,mlp:1",
        "rounds": ROUNDS,
        "local-epochs": 1,
        "batch-size": 10,
        "mc-samples": 1,
    }


def run(values: Any, folder: Path, **changes: Any) -> RunFolder:
    return make_run(values, CLIENTS, folder, **changes)


Watched = tuple[RunFolder, list[RecordDict], list[RecordDict], list[LocalTask]]


@pytest.fixture(scope="module")
def watched(values: Any, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """Return a run, what clients were sent and have sent in it, and what they trained."""
    asked: list[RecordDict] = []
    send, train = wire.train_content, LocalTrainer.train

    def send_and_keep(*given: Any, **more: Any) -> Any:
        asked.append(send(*given, **more))
        return asked[-1]

    def check_and_train(trainer: LocalTrainer, images: Any, labels: Any, task: LocalTask) -> Any:
        classes = CLASSES[int(task.key_labels[1])]
        assert trainer.network.classes == trainer.companion.network.classes == classes  # type: ignore[union-attr]
        assert set(labels[task.examples]) == set(range(classes))
        result = train(trainer, images, labels, task)
        assert trainer.traces == 1
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "train_content", send_and_keep)
        patch.setattr(LocalTrainer, "train", check_and_train)
        replies, trained = watch_updates(patch), watch_training(patch)
        folder = run(values, tmp_path_factory.mktemp("runs") / "watched")
    tasks = [task for _, task in trained]
    return folder, asked, replies, tasks


def head(folder: RunFolder, client: int, server_round: int) -> dict[str, Any]:
    return snapshots_of(folder, client, "part.head.")[server_round]


def test_messages_hold_the_shared_parameters_and_a_closed_set_of_numbers(watched: Watched) -> None:
    folder, asked, replies, _ = watched
    _, manifest = folder.posterior()
    assert {name.split("/")[0] for name in (p.name for p in manifest)} == {"conv1", "conv2"}
    allowed = {"num-examples", "test-examples", "seconds", "memory", "better-accuracy"}
    assert len(replies) == len(asked) == CLIENTS * ROUNDS
    for content in (*asked, *replies):
        assert not extra_arrays(content)
        for name, array in content["arrays"].items():
            size = manifest.point_size if name == "point" else manifest.gaussian_size
            assert array.shape == (size,)
    for content in replies:
        assert sorted(content) == ["arrays", "metrics"]
        assert sorted(content["arrays"]) == sorted(VECTORS)
        metrics = set(content["metrics"])
        assert all(name.startswith(("train-", "meme-", "personal-")) for name in metrics - allowed)


def test_no_piece_of_a_head_is_in_a_message(watched: Watched) -> None:
    """Four values in a row, that is: single ones coincide by chance."""
    folder, _, replies, _ = watched
    sent = [array.data for content in replies for array in content["arrays"].values()]
    # What is sent is found in this way.
    own = posterior_from_arrays(replies[-1]["arrays"]).mean
    assert any(own[8:12].tobytes() in data for data in sent)
    for client in range(CLIENTS):
        for server_round in range(1, ROUNDS + 1):
            mean = head(folder, client, server_round)["mean"]
            assert mean.size > 400
            for start in range(0, mean.size - 4, 40):
                piece = mean[start : start + 4].tobytes()
                assert not any(piece in data for data in sent)


def test_a_head_goes_on_from_round_to_round_and_is_its_clients_own(watched: Watched) -> None:
    folder, _, _, tasks = watched
    for task in tasks:
        server_round, client = map(int, task.key_labels)
        if server_round == 1:
            continue
        before = head(folder, client, server_round - 1)
        size = before["mean"].size
        # The head's layers come last in the network's vectors.
        np.testing.assert_array_equal(task.received.mean[-size:], before["mean"])
    last = [head(folder, client, ROUNDS)["mean"] for client in range(CLIENTS)]
    assert last[0].size == last[1].size < last[2].size
    assert np.abs(last[0] - last[1]).max() > 0


def test_clients_evaluate_both_of_their_models_and_the_server_none(watched: Watched) -> None:
    folder, *_ = watched
    table = folder.read_json("run.json:clients")
    assert sum(row["test-examples"] for row in table.values()) == 40
    for row in table.values():
        assert {"last-meme-accuracy", "last-personal-accuracy", "best-better-accuracy"} <= set(row)
        assert "global-accuracy" not in row
    assert "accuracy" not in folder.metrics()
    assert "clients-last-meme-accuracy" in folder.metrics()
    assert not [entry for entry in folder.rounds() if "accuracy" in entry]


def test_an_interrupted_and_resumed_run_has_the_same_heads(
    values: Any, watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    interrupt(monkeypatch, path, lambda: run(values, path))
    check_same_states(watched[0], run(values, path, resume=True), CLIENTS)
