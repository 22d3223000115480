"""What clients say of their own models is of the models that were trained."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bfl.configuration import resolve
from bfl.data.datasets import load_dataset
from bfl.evaluation.metrics import evaluate
from bfl.evaluation.prediction import PredictionStatistics
from bfl.federation.wire import TrainTask
from bfl.learning.networks.parametrizations import LogVariance
from bfl.posteriors import Posterior
from bfl.posteriors.posterior import VECTORS
from clients import evaluation

IMAGES = 40
NLL = "negative-log-likelihood"
CLAMPED = {
    "model": "mlp",
    "scale-parametrization": "log-variance",
    "log-variance-clamp": 4.0,
    "initial-scale": 0.001,
    "evaluated-by": "clients",
    "evaluate-mc-samples": 3,
}

pytestmark = pytest.mark.usefixtures("tensorflow")


def judged(
    evaluated_at: str, monkeypatch: pytest.MonkeyPatch, mean: float | None = None
) -> tuple[dict[str, float | int], Any, Any]:
    """Return what a client says of its meme, the network, and the meme; with that mean, if any."""
    from bfl.learning.networks.network import build_network

    digits = load_dataset("digits")
    own = digits.test_images[:IMAGES], digits.test_labels[:IMAGES]
    monkeypatch.setattr(evaluation, "_own_test_images", lambda *_: own)
    configuration = resolve({**CLAMPED, "evaluate-at": evaluated_at})
    network = build_network(
        configuration.architecture, configuration.inference, digits.image_shape, digits.num_classes
    )
    meme = network.initial_posterior(0)
    if mean is not None:
        meme = replace(meme, mean=np.full_like(meme.mean, mean))
    task, node = TrainTask(1, 2, "{}", 3, None), SimpleNamespace(dataset="")
    trainer: Any = SimpleNamespace(network=network, companion=None)
    found = evaluation.evaluated_metrics(
        configuration, task, node, trainer, configuration.architecture, (meme, {})
    )
    return found, network, meme


@pytest.mark.parametrize("evaluated_at", ["draws", "mean"])
def test_a_client_judges_what_its_network_computes_with(
    evaluated_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the clamped variances: of deviations e^-2 where the posterior has 0.001."""
    from bfl.evaluation.prediction.monte_carlo import drawn_values
    from bfl.learning.inferences import inferences
    from bfl.learning.networks.network import build_network

    found, network, meme = judged(evaluated_at, monkeypatch)
    digits, configuration = load_dataset("digits"), resolve(CLAMPED)
    images, labels = digits.test_images[:IMAGES], digits.test_labels[:IMAGES]
    shape = (digits.image_shape, digits.num_classes)
    points = build_network(configuration.architecture, inferences.create("deterministic"), *shape)
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
    """It could be right by chance where a client's few images are of one class."""
    from bfl.learning.networks.network import build_network

    digits = load_dataset("digits")
    right = np.zeros(IMAGES, np.int64)
    monkeypatch.setattr(
        evaluation, "_own_test_images", lambda *_: (digits.test_images[:IMAGES], right)
    )
    given = {"strategy": "fedavg", "model": "mlp", "personalization": personalization}
    configuration = resolve({**given, "inference": "deterministic", "evaluated-by": "clients"})
    shape = (digits.image_shape, digits.num_classes)
    network, personal = (
        build_network(configuration.architecture, configuration.inference, *shape) for _ in range(2)
    )

    def says_always(label: int) -> Posterior:
        """Return a network of zeros whose last bias says the label, whatever the image."""
        start = network.initial_posterior(0)
        bias = np.zeros(digits.num_classes)
        bias[label] = 9.0
        point = np.zeros_like(start.point)
        point[-digits.num_classes :] = bias
        return replace(start, mean=np.zeros_like(start.mean), point=point)

    own = {name: getattr(says_always(1), name) for name in VECTORS}
    trainer: Any = SimpleNamespace(network=network, companion=SimpleNamespace(network=personal))
    task, node = TrainTask(1, 2, "{}", 3, None), SimpleNamespace(dataset="")
    found = evaluation.evaluated_metrics(
        configuration, task, node, trainer, configuration.architecture, (says_always(0), own)
    )
    assert found["personal-accuracy"] == 0.0
    assert ("meme-accuracy" in found) == meme
    assert found["better-accuracy"] == (1.0 if meme else 0.0)
