"""Monte Carlo prediction against a loop over the draws, and what its bits depend on."""

import numpy as np
import pytest
from scipy.special import softmax
from small_network import SmallNetwork

from bfl.evaluation.metrics import evaluate
from bfl.learning.inferences import inferences
from bfl.posteriors import Posterior

pytestmark = pytest.mark.usefixtures("tensorflow")

SHAPE = (8, 8, 1)
IMAGES = np.random.default_rng(0).integers(0, 256, (30, *SHAPE), dtype=np.uint8)
LABELS = ("test", 1)


class Case:
    """A network, a predictor for it, and a posterior whose predictions are not trivial."""

    def __init__(self, inference, scale=0.05, **settings):
        from bfl.evaluation.prediction.monte_carlo import Predictor
        from bfl.learning.networks.network import build_network, build_predictor

        self.architecture = SmallNetwork()
        chosen = inferences.create(inference, settings)
        self.network = build_network(self.architecture, chosen, SHAPE, 10)
        self.points = build_predictor(self.network, self.architecture)
        self.predictor = Predictor(self.network, self.architecture)
        rng = np.random.default_rng(1)
        initial = self.network.initial_posterior(0)
        variance = (scale * rng.uniform(0.2, 2, initial.size)) ** 2
        noise = rng.uniform(-0.2, 0.2, initial.point.size)
        self.posterior = Posterior(
            initial.mean, variance.astype(np.float32), (initial.point + noise).astype(np.float32)
        )

    def by_batches(self, size):
        """Return a predictor of its own batches."""
        return type(self.predictor)(self.network, self.architecture, batch_size=size)

    def predict(self, images=IMAGES, *, samples=3, seed=0, labels=LABELS, predictor=None):
        return (predictor or self.predictor).predict(
            self.posterior, images, samples=samples, seed=seed, labels=labels
        )


@pytest.fixture(scope="module")
def flipout(tensorflow):
    return Case("flipout")


@pytest.fixture(scope="module")
def deterministic(tensorflow):
    return Case("deterministic")


@pytest.fixture(scope="module")
def mc_dropout(tensorflow):
    return Case("mc-dropout")


CASES = ("flipout", "deterministic", "mc_dropout")


@pytest.fixture(params=CASES)
def case(request):
    return request.getfixturevalue(request.param)


def digest(predictions):
    return [
        getattr(predictions, name).tobytes()
        for name in (
            "mean_probability",
            "log_mean_probability",
            "expected_entropy",
            "aleatoric",
            "epistemic",
        )
    ]


def probabilities_of(network):
    """Return what a network says of the images, by one pass."""
    return softmax(logits_of(network), axis=1)


def logits_of(network):
    """Return float64 logits (30, 10) of a network as it is loaded."""
    images = IMAGES.astype(np.float32) / 127.5 - 1
    return network.logits(images, np.zeros(2, np.int32), training=False).numpy().astype(float)


def record_draws(monkeypatch, network):
    """Return a list that gets the weights of each draw that is loaded into a network."""
    drawn, load_values = [], network.load_values

    def load_and_record(manifest, values, point):
        drawn.append(values.copy())
        load_values(manifest, values, point)

    monkeypatch.setattr(network, "load_values", load_and_record)
    return drawn


def test_prediction_is_the_mean_over_draws_of_the_weights(flipout, monkeypatch):
    drawn = record_draws(monkeypatch, flipout.points)
    predictions = flipout.predict(samples=4)
    assert predictions.samples == len(drawn) == 4
    samples = []
    monkeypatch.undo()
    for values in drawn:
        # One draw of all weights for all images, through the network of point weights.
        flipout.points.load_values(flipout.network.manifest, values, flipout.posterior.point)
        samples.append(probabilities_of(flipout.points))
    stacked = np.stack(samples)
    np.testing.assert_allclose(predictions.mean_probability, stacked.mean(axis=0), atol=1e-5)
    epistemic = ((stacked - stacked.mean(axis=0)) ** 2).sum(axis=2).mean(axis=0)
    np.testing.assert_allclose(predictions.epistemic, epistemic, atol=1e-5)
    assert epistemic.max() > 1e-3


def test_draws_have_the_posteriors_mean_and_variance(flipout, monkeypatch):
    drawn = record_draws(monkeypatch, flipout.points)
    flipout.predict(IMAGES[:1], samples=2)
    first = [drawn.pop() for _ in "12"][::-1]
    flipout.predict(IMAGES[:1], samples=8)
    np.testing.assert_array_equal(drawn[:2], first)  # they do not depend on how many follow
    standardized = [
        (values.astype(np.float64) - flipout.posterior.mean) / np.sqrt(flipout.posterior.variance)
        for values in drawn
    ]
    size = flipout.posterior.size
    for normal in standardized:
        assert abs(normal.mean()) < 5 / np.sqrt(size)
        assert np.mean(normal**2) == pytest.approx(1, abs=5 * np.sqrt(2 / size))
        assert np.mean(normal**4) == pytest.approx(3, abs=0.3)
    correlation = np.corrcoef(standardized) - np.eye(8)
    assert np.abs(correlation).max() < 5 / np.sqrt(size)


def test_points_predict_once(deterministic):
    predictions = deterministic.predict(samples=7)
    assert predictions.samples == 1
    assert (predictions.epistemic == 0).all()
    other = deterministic.predict(samples=2, seed=5, labels=("other",))
    assert digest(other) == digest(predictions)
    deterministic.network.load(deterministic.posterior)
    expected = probabilities_of(deterministic.network)
    np.testing.assert_allclose(predictions.mean_probability, expected, atol=1e-5)


def test_dropout_stays_on(mc_dropout):
    predictions = mc_dropout.predict(samples=5)
    assert predictions.samples == 5
    assert (predictions.epistemic > 0).all()
    # The same image many times, over several batches: every one has masks of its own.
    small = mc_dropout.by_batches(4)
    rows = mc_dropout.predict(IMAGES[:1].repeat(12, axis=0), samples=1, predictor=small)
    assert len(np.unique(rows.mean_probability, axis=0)) == 12


CLAMPED = {"scale-parametrization": "log-variance", "log-variance-clamp": 8.0}
AT_MEAN = [
    *((name, {}) for name in inferences.names()),
    ("mc-dropout", {"dropout-rate": 0.5}),
    ("flipout", CLAMPED),
    ("flipout", {"variational-layers": "last"}),
    ("reparameterization", {**CLAMPED, "variational-layers": "dense"}),
]


@pytest.mark.parametrize(("inference", "settings"), AT_MEAN, ids=str)
def test_at_its_mean_a_posterior_predicts_as_the_network_of_points(inference, settings):
    """Without dropout, and without a draw however small a variance the network computes with."""
    from bfl.learning.networks.network import build_network

    case = Case(inference, scale=1e-6, **settings)
    points = build_network(case.architecture, inferences.create("deterministic"), SHAPE, 10)
    points.load_values(case.network.manifest, case.posterior.mean, case.posterior.point)
    predictions = case.predictor.predict_at_mean(case.posterior, IMAGES)
    assert predictions.samples == 1
    np.testing.assert_allclose(predictions.mean_probability, probabilities_of(points), atol=1e-5)
    again = case.predictor.predict_at_mean(case.posterior, IMAGES)
    assert digest(again) == digest(predictions)


@pytest.mark.parametrize("inference", ["flipout", "reparameterization"])
def test_draws_have_the_variances_that_the_network_computes_with(inference, monkeypatch):
    """Nothing says so but the network that the posteriors are of."""
    case = Case(inference, scale=1e-6, **CLAMPED)
    drawn = record_draws(monkeypatch, case.points)
    case.predict(IMAGES[:1], samples=1)
    assert (drawn[0] - case.posterior.mean).std() == pytest.approx(np.exp(-4.0), rel=0.02)


def test_a_wrong_and_certain_prediction_costs_what_its_logits_say(deterministic):
    """Beyond the 87 nats at which float32's softmax ends."""
    points, names = deterministic.points, [p.name for p in deterministic.network.manifest.point]
    parts = deterministic.network.manifest.split(deterministic.posterior.point, gaussian=False)
    vector = deterministic.posterior.point.copy()
    certain = Posterior(deterministic.posterior.mean, deterministic.posterior.variance, vector)
    bias = deterministic.network.manifest.split(vector, gaussian=False)
    bias[names.index("logits/bias")][3] = parts[names.index("logits/bias")][3] + 1000.0
    predictions = deterministic.predictor.predict(certain, IMAGES, samples=1, seed=0, labels=LABELS)
    points.load_values(deterministic.network.manifest, certain.mean, certain.point)
    logits = logits_of(points)
    expected = logits[:, 3] - logits[:, 5]
    assert expected.min() > 900
    wrong = evaluate(predictions, np.full(len(IMAGES), 5))["negative-log-likelihood"]
    assert wrong == pytest.approx(expected.mean(), rel=1e-5)


def test_bits_do_not_depend_on_what_was_predicted_before(case, flipout, mc_dropout):
    first = digest(case.predict())
    assert digest(case.predict()) == first
    for other in (flipout, mc_dropout):
        other.predict(IMAGES[:5], samples=2, labels=("something", "else"))
    assert digest(case.predict()) == first
    again = type(case.predictor)(case.network, case.architecture)
    assert digest(case.predict(predictor=again)) == first
    if case.points.inference.stochastic_prediction or case.posterior.size:
        changes = ({"seed": 1}, {"labels": ("test", 2)}, {"labels": ("other", 1)})
        others = [digest(case.predict(**change)) for change in changes]
        assert len({tuple(each) for each in (first, *others)}) == 4


@pytest.mark.parametrize("case", ["flipout", "mc_dropout"], indirect=True)
def test_batches_side_by_side_give_the_same_bits(case, monkeypatch):
    from bfl.evaluation.prediction import forward

    small = case.by_batches(7)
    monkeypatch.setattr(forward, "batches_at_once", lambda: 1)
    alone = case.predict(predictor=small)
    monkeypatch.setattr(forward, "batches_at_once", lambda: 4)
    assert all(digest(case.predict(predictor=small)) == digest(alone) for _ in range(5))
