"""Evaluation by clients: on their own test images, of their own classes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from bfl.configuration import Configuration, resolve
from bfl.data.datasets import load_dataset
from bfl.errors import ConfigurationError
from bfl.evaluation.metrics import evaluate
from bfl.evaluation.prediction import PredictionStatistics
from bfl.federation.wire import TrainTask
from bfl.learning.networks.parametrizations import LogVariance
from bfl.posteriors import Posterior
from bfl.posteriors.posterior import VECTORS
from clients import evaluation
from clients.closing import measure_final_model
from clients.evaluation import evaluate_models
from clients.examples import own_classes
from clients.node import Node

ROOT = Path(__file__).resolve().parent.parent.parent
SITE: Any = SimpleNamespace(dataset="npz:site.npz", plugins_folder=None)


@pytest.mark.usefixtures("tensorflow")
@pytest.mark.parametrize("by_clients", [False, True])
def test_a_node_with_data_of_its_own_is_tested_in_the_rounds_that_are_evaluated(
    by_clients: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The posterior is predicted with once; where clients evaluate, in the last round as well."""
    from bfl.evaluation.prediction.monte_carlo import Predictor
    from bfl.experiments.run.network import trainer_for

    predicted: list[tuple[Posterior, int, Any]] = []
    original = Predictor.predict

    def predict(self: Predictor, posterior: Posterior, *given: Any, **named: Any) -> Any:
        predicted.append((posterior, named["samples"], named["labels"]))
        return original(self, posterior, *given, **named)

    monkeypatch.setattr(Predictor, "predict", predict)
    given = {"model": "mlp", "evaluate-every": 2, "rounds": 3, "evaluate-mc-samples": 2}
    values = {**given, "evaluated-by": "clients" if by_clients else "server"}
    configuration = resolve(values)
    trainer = trainer_for(configuration, (8, 8, 1), 10)
    learnt = trainer.network.initial_posterior(0)
    node: Any = SimpleNamespace(dataset="digits", plugins_folder=None)
    found = []
    for client, server_round in [(0, 1), (0, 2), (1, 2), (0, 3)]:
        task = TrainTask(server_round, client, json.dumps(values), 10, None)
        found.append(evaluate_models(configuration, task, node, trainer, "", learnt, {}))
    assert all(posterior is learnt and samples == 2 for posterior, samples, _ in predicted)
    # With samples anew for each client and round.
    assert len({labels for *_, labels in predicted}) == len(predicted) == (3 if by_clients else 2)
    assert found[0] == {}
    for each in found[1:3]:
        assert each["test-examples"] == 360
        assert 0.0 <= each["test-accuracy"] <= 1.0
        assert each.get("meme-accuracy") == (each["test-accuracy"] if by_clients else None)
    assert found[3].keys() == (found[1].keys() - {"test-accuracy"} if by_clients else set())
    without: Any = SimpleNamespace(dataset="", plugins_folder=None)
    if not by_clients:
        assert evaluate_models(configuration, task, without, trainer, "", learnt, {}) == {}


@pytest.mark.parametrize(
    "keys", [{"example-privacy": "dp-sgd"}, {"exchange": "masked"}, {"evaluate-every": 0}]
)
def test_what_a_node_keeps_in_rounds_it_keeps_at_the_end(keys: dict[str, Any]) -> None:
    plain = {"strategy": "nwa", "model": "mlp", "round-retries": 0}
    client: Any = SimpleNamespace(configuration=resolve({**plain, **keys}), node=SITE)
    with pytest.raises(ConfigurationError, match="metrics"):
        measure_final_model(*[Any] * 3, client)


IMAGES = 40
DIGITS = load_dataset("digits")
NLL = "negative-log-likelihood"
CLAMPED = {
    "model": "mlp",
    "strategy": "ws",
    "scale-parametrization": "log-variance",
    "log-variance-clamp": 4.0,
    "initial-scale": 0.001,
    "evaluated-by": "clients",
    "evaluate-mc-samples": 3,
}

pytestmark = pytest.mark.usefixtures("tensorflow")


def network_of(configuration: Configuration, inference: Any = None) -> Any:
    from bfl.learning.networks.network import build_network

    chosen = inference or configuration.inference
    return build_network(configuration.architecture, chosen, DIGITS.image_shape, 10)


def judged(
    evaluated_at: str, monkeypatch: pytest.MonkeyPatch, mean: float | None = None
) -> tuple[dict[str, float | int], Any, Any]:
    """Return what a client says of its meme, the network, and the meme; with that mean, if any."""
    own = DIGITS.test_images[:IMAGES], DIGITS.test_labels[:IMAGES]
    monkeypatch.setattr(evaluation, "_own_test_images", lambda *_: own)
    configuration = resolve({**CLAMPED, "evaluate-at": evaluated_at})
    network = network_of(configuration)
    meme = network.initial_posterior(0)
    if mean is not None:
        meme = replace(meme, mean=np.full_like(meme.mean, mean))
    task, node = TrainTask(1, 2, "{}", 3, None), SimpleNamespace(dataset="")
    trainer: Any = SimpleNamespace(network=network, companion=None)
    found = evaluate_models(configuration, task, node, trainer, "", meme, {})
    return found, network, meme


@pytest.mark.parametrize("evaluated_at", ["draws", "mean"])
def test_a_client_judges_what_its_network_computes_with(
    evaluated_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bfl.evaluation.prediction.monte_carlo import drawn_values
    from bfl.learning.inferences import inferences

    found, network, meme = judged(evaluated_at, monkeypatch)
    configuration = resolve(CLAMPED)
    images, labels = DIGITS.test_images[:IMAGES], DIGITS.test_labels[:IMAGES]
    points = network_of(configuration, inferences.create("deterministic"))
    keyed = (0, ("own-test", "meme-", 2, 1))
    draws = [drawn_values(meme, *keyed, m, LogVariance(4.0)) for m in range(3)]
    statistics = PredictionStatistics()
    for values in draws if evaluated_at == "draws" else [meme.mean]:
        points.load_values(network.manifest, values, meme.point)
        inputs, key = images.astype(np.float32) / 127.5 - 1, np.zeros(2, np.int32)
        statistics.add_logits(points.logits(inputs, key, training=False).numpy())
    expected = evaluate(statistics.result(), labels, configuration.values)
    assert found["test-examples"] == IMAGES
    assert found[f"meme-{NLL}"] == pytest.approx(expected[NLL], rel=1e-5)
    assert found["meme-accuracy"] == expected["accuracy"]


@pytest.mark.parametrize("evaluated_at", ["draws", "mean"])
def test_a_model_whose_logits_overflow_has_no_image_right_and_is_sent(
    evaluated_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _, _ = judged(evaluated_at, monkeypatch, mean=1e30)
    assert found == {"test-examples": IMAGES, "meme-accuracy": 0.0}


@pytest.mark.parametrize(("personalization", "meme"), [("alone", False), ("distillation", True)])
def test_a_meme_that_nobody_trains_is_not_judged(
    personalization: str, meme: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_test = DIGITS.test_images[:IMAGES], np.zeros(IMAGES, np.int64)
    monkeypatch.setattr(evaluation, "_own_test_images", lambda *_: own_test)
    given = {"strategy": "fedavg", "model": "mlp", "personalization": personalization}
    configuration = resolve({**given, "inference": "deterministic", "evaluated-by": "clients"})
    network, personal = network_of(configuration), network_of(configuration)

    def says_always(label: int) -> Posterior:
        """Return a network of zeros whose last bias says the label, whatever the image."""
        start = network.initial_posterior(0)
        point = np.zeros_like(start.point)
        point[label - 10] = 9.0
        return replace(start, mean=np.zeros_like(start.mean), point=point)

    own = {name: getattr(says_always(1), name) for name in VECTORS}
    trainer: Any = SimpleNamespace(network=network, companion=SimpleNamespace(network=personal))
    task, node = TrainTask(1, 2, "{}", 3, None), SimpleNamespace(dataset="")
    found = evaluate_models(configuration, task, node, trainer, "", says_always(0), own)
    assert found["personal-accuracy"] == 0.0
    assert ("meme-accuracy" in found) == meme
    assert found["better-accuracy"] == (1.0 if meme else 0.0)


CLASSES = (3, 2, 4)
"""Of the two tasks, and of a node's own data."""


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """Return the words of three small archives."""
    images = np.zeros((12, 4, 4, 1), np.uint8)
    for number, classes in enumerate(CLASSES):
        labels = {"y_train": np.arange(12) % classes, "y_test": np.arange(12) % classes}
        np.savez(tmp_path / f"{number}.npz", x_train=images, x_test=images, **labels)
    return [f"npz:{tmp_path}/{number}.npz" for number in range(len(CLASSES))]


def classes_of(shared: str, client: int, words: list[str], **node: Any) -> tuple[int, int]:
    values = {"dataset": f"tasks:{words[0]}:1,{words[1]}:1", "evaluated-by": "clients"}
    if shared == "all":
        values = {"dataset": words[0]}
    configuration = resolve({"strategy": "fedavg", "shared": shared, "model": "cnn1", **values})
    config = {"partition-id": client, "num-partitions": 2, "allow-run-paths": True, **node}
    context = Context(1, 1, config, RecordDict(), {})
    task = TrainTask(1, client, "{}", 3, None)
    return own_classes(configuration, task, Node.of(context))


def test_a_head_has_the_classes_of_its_task_or_of_the_nodes_own_data(words: list[str]) -> None:
    assert classes_of("convolutions", 0, words) == (0, 3)
    assert classes_of("convolutions", 1, words) == (3, 2)
    assert classes_of("convolutions", 1, words, dataset=words[2]) == (0, 4)
    assert classes_of("all", 1, words) == classes_of("all", 1, words, dataset=words[2]) == (0, 3)
