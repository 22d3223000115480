"""Personal models in whole runs with small real networks, in this process."""

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

from bfl.configuration import resolve
from bfl.data.datasets import cached_dataset
from bfl.errors import ConfigurationError
from bfl.evaluation.metrics import metrics
from bfl.evaluation.regression import REGRESSION
from bfl.experiments.results.clients import names_of_means
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.run.network import personal_network
from bfl.learning.training import LocalTask
from bfl.learning.training.trainer import LocalTrainer
from bfl.posteriors import Posterior
from bfl.posteriors.posterior import VECTORS
from strategies.application.data import divide
from strategies.application.preflight import check_before_start
from strategies.federation import Federation

ROOT = Path(__file__).resolve().parent.parent.parent
CLIENTS, ROUNDS = 3, 4
MIXED = "mlp:1,cnn1:1,lenet5:1"
METRICS = (
    "num-examples train-objective train-negative-log-likelihood train-divergence "
    "train-divergence-per-example train-steps train-seconds memory"
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("undrawn_figures")]


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return a configuration with a few images of 16 x 16 pixels."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "small.npz"
    images = rng.integers(0, 256, (80, 16, 16, 1), dtype=np.uint8)
    labels = rng.integers(0, 4, 80)
    labels[:4] = labels[60:64] = np.arange(4)
    np.savez(path, x_train=images[:60], y_train=labels[:60], x_test=images[60:], y_test=labels[60:])
    return {
        "dataset": f"npz:{path}",
        "strategy": "hbfl",
        "personalization": "distillation",
        "personal-models": MIXED,
        "model": "mlp",
        "rounds": ROUNDS,
        "local-epochs": 1,
        "batch-size": 10,
        "mc-samples": 1,
        "evaluate-every": 0,
        "fraction-train": 2 / CLIENTS,
        "seed": 105,  # clients 0 and 1, 0 and 2, 1 and 2, 0 and 1
    }


def run(values: Any, folder: Path, **changes: Any) -> RunFolder:
    return make_run(values, CLIENTS, folder, **changes)


Mixed = tuple[RunFolder, list[RecordDict], list[tuple[LocalTrainer, LocalTask]]]


@pytest.fixture(scope="module")
def mixed(values: Any, tmp_path_factory: pytest.TempPathFactory) -> Mixed:
    """Return a run, what clients have sent in it, and their trainers and tasks."""
    with pytest.MonkeyPatch.context() as patch:
        replies, trained = watch_updates(patch), watch_training(patch)
        folder = run(values, tmp_path_factory.mktemp("runs") / "mixed")
    return folder, replies, trained


def test_clients_send_their_posterior_and_a_closed_set_of_numbers(mixed: Any) -> None:
    _, replies, _ = mixed
    assert len(replies) == 2 * ROUNDS
    for content in replies:
        assert sorted(content) == ["arrays", "metrics"]
        assert sorted(content["arrays"]) == ["mean", "point", "variance"]
        assert sorted(content["metrics"]) == sorted(METRICS.split())


def test_one_process_serves_all_architectures_with_one_trace_each(mixed: Mixed) -> None:
    trainers = [(task.key_labels[1], trainer) for trainer, task in mixed[2]]
    assert len(trainers) == 2 * ROUNDS, "all in this process"
    of_clients = {client: {id(t) for c, t in trainers if c == client} for client, _ in trainers}
    assert [len(served) for served in of_clients.values()] == [1] * CLIENTS
    assert len({id(trainer) for _, trainer in trainers}) == len(MIXED.split(",")) == CLIENTS
    assert {trainer.traces for _, trainer in trainers} == {1}


def test_other_personal_models_change_no_byte_that_is_sent(
    values: Any, mixed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, before, _ = mixed
    replies = watch_updates(monkeypatch)
    run(values, tmp_path / "other", personal_models="cnn1:1,mlp", personal_learning_rate=0.1)
    assert len(replies) == len(before)
    for one, other in zip(before, replies, strict=True):
        for name, array in one["arrays"].items():
            assert array.data == other["arrays"][name].data
        for name, number in one["metrics"].items():
            if name not in ("train-seconds", "memory"):
                assert number == other["metrics"][name]


def test_a_client_goes_on_with_the_model_that_it_had_however_long_it_was_away(mixed: Any) -> None:
    folder, _, trained = mixed
    tasks = [(*map(int, task.key_labels), task) for _, task in trained]
    sizes, waited = {}, 0
    for number, client, task in tasks:
        earlier = [n for n, c, _ in tasks if c == client and n < number]
        state = task.personal.state
        if not earlier:
            assert not state
            continue
        waited = max(waited, number - earlier[-1])
        saved = snapshots_of(folder, client, "part.personal.").get(earlier[-1], state)
        for name, array in state.items():
            np.testing.assert_array_equal(array, saved[name])
        sizes[client] = state["point"].size
    assert waited > 1
    assert len(set(sizes.values())) == len(sizes) == CLIENTS
    # They are on their clients alone.
    assert not [p for p in folder.path.glob("checkpoints/*") if b"personal" in p.read_bytes()]


def test_interrupted_and_resumed_runs_have_the_same_personal_models(
    values: Any, mixed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    interrupt(monkeypatch, path, lambda: run(values, path))
    check_same_states(mixed[0], run(values, path, resume=True), CLIENTS)


def test_clients_evaluate_both_models_on_test_data_of_their_own(
    values: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the last round all numbers can be made again from what is on the disk."""
    replies = watch_updates(monkeypatch)
    folder = run(values, tmp_path / "judged", evaluated_by="clients", **{"fraction-train": 1.0})
    table, data = folder.read_json("run.json:clients"), cached_dataset(values["dataset"], "")
    assert sorted(table) == ["0", "1", "2"]
    assert sum(row["test-examples"] for row in table.values()) == data.test_labels.size
    judged = [content["metrics"] for content in replies if "meme-accuracy" in content["metrics"]]
    assert len(judged) == CLIENTS  # in the last round alone: evaluate-every is 0
    known = [*metrics.names(), "retention-area-accuracy-predictive-entropy"]
    names = {f"{model}-{name}" for model in ("meme", "personal") for name in known}
    assert set(judged[0]) == {*METRICS.split(), *names, "better-accuracy", "test-examples"}
    for client, word in enumerate(("mlp", "cnn1", "lenet5")):
        row = table[str(client)]
        network = personal_network(resolve(values), word, (16, 16, 1), 4)
        saved = snapshots_of(folder, client, "part.personal.")[ROUNDS]
        network.load(Posterior(*(saved[name] for name in VECTORS)))
        positions = own_positions(folder, data)[client]
        logits = network.model(data.test_images[positions] / np.float32(127.5) - 1, training=False)
        right = np.argmax(logits, axis=1) == data.test_labels[positions]
        assert row["test-examples"] == positions.size
        assert row["last-personal-accuracy"] == row["best-personal-accuracy"] == right.mean()
        assert row["last-better-accuracy"] == max(right.mean(), row["last-meme-accuracy"])
        right = folder.predictions()[0].predicted == data.test_labels
        assert row["global-accuracy"] == right[positions].mean()
    mean = np.mean([row["last-personal-accuracy"] for row in table.values()])
    assert folder.metrics()["clients-last-personal-accuracy"] == mean
    means = {name for name in folder.metrics() if name.startswith("clients-")}
    of_others = ("conformal", "corrupted", *REGRESSION)
    assert means == {n for n in names_of_means() if not any(other in n for other in of_others)}


def own_positions(folder: RunFolder, data: Any) -> list[Any]:
    """Return the clients' test examples, from the run's partition and seed."""
    configuration = resolve(folder.config())
    nodes = Federation(dict.fromkeys(range(CLIENTS), 1), dict.fromkeys(range(CLIENTS), 0))
    positions = divide(configuration, data, nodes).test
    assert positions is not None
    return list(positions)


def test_personal_models_without_test_data_are_refused_before_an_engine_is_started(
    values: Any, tmp_path: Path
) -> None:
    """The draw of the split is made for it: the numbers of images alone would not tell."""
    few = {**values, "output-dir": str(tmp_path), "test-examples": 2, "evaluated-by": "clients"}
    with pytest.raises(ConfigurationError, match="test-examples is 2"):
        check_before_start(resolve(few), CLIENTS)
    check_before_start(resolve({**few, "evaluated-by": "server"}), CLIENTS)
    check_before_start(resolve({**few, "personalization": "none"}), CLIENTS)
