"""IVON's steps beside those of the reference package, with any prior, and what is refused."""

import numpy as np
import pytest
from ivon_reference import (
    DECAY,
    DELTA,
    FIXTURE,
    INITIAL_HESSIAN,
    LAMBDA,
    RATE,
    problem,
    reference_steps,
)
from one_layer import OneLayer, posterior_of, task_of, train, trainer_of

from bfl.configuration import resolve
from bfl.errors import ConfigurationError
from bfl.learning.inferences import inferences
from bfl.learning.optimizers import optimizers
from bfl.learning.priors import NormalPrior, QuadraticPrior
from bfl.posteriors import Posterior

pytestmark = pytest.mark.usefixtures("tensorflow")

SCALE = (LAMBDA * (INITIAL_HESSIAN + DELTA)) ** -0.5


class OneConvolution(OneLayer):
    """The dense layer of the four pixels as a convolution that they fill."""

    def build(self, inference, image_shape, classes):
        from bfl.keras import keras

        images = keras.Input(image_shape)
        whole = inference.convolution(classes, 2, strides=1, name="c", padding="valid")
        return keras.Model(images, keras.layers.Flatten()(whole(images)))


DENSE = OneLayer(normalized=False)


def steps_like(given, monkeypatch, architecture, temperature):
    """Return means and Hessians after each step with the same draws, (steps, D) each."""
    from bfl.keras import tf
    from bfl.learning.networks import layers
    from bfl.learning.networks.network import Network, normalized_images
    from bfl.learning.objectives import objectives
    from bfl.learning.training.learner import Batch, Learner

    inference = inferences.create("ivon", {"initial-scale": SCALE})
    network = Network(architecture, inference, (2, 2, 1), 3)
    optimizer = optimizers.create("ivon", {"hessian-decay": DECAY})
    elbo = (objectives.create("elbo"),)
    learner = Learner(network, optimizer, elbo, temperature=temperature)
    start = Posterior(
        given["start"], np.full_like(given["start"], SCALE**2), np.zeros(0, np.float32)
    )
    learner.begin(start, start, NormalPrior(0.0, (LAMBDA * DELTA) ** -0.5), {})
    images = normalized_images(given["pixels"].reshape(-1, 2, 2, 1))
    labels, count = tf.constant(given["labels"], tf.int32), tf.constant(LAMBDA * temperature)
    batch = Batch(images, labels, tf.ones(len(images)), count)
    means, hessians = [], []
    for number, draw in enumerate(given["draws"]):
        parts = [draw[:12], draw[12:]]  # the bias is drawn before the kernel
        monkeypatch.setattr(
            layers, "_draw", lambda s, parts=parts: s * parts.pop().reshape(s.shape)
        )
        passed = learner.forward(images, tf.constant([0, 0]))
        learner.learn(passed, batch, tf.constant(number), tf.constant(RATE))
        trained = network.posterior()
        means.append(trained.mean)
        hessians.append(1.0 / (LAMBDA * trained.variance) - DELTA)
    return np.stack(means), np.stack(hessians)


def compare(given, monkeypatch, architecture=DENSE, temperature=1.0):
    means, hessians = steps_like(given, monkeypatch, architecture, temperature)
    np.testing.assert_allclose(means, given["means"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(hessians, given["hessians"], rtol=1e-5, atol=1e-5)
    # They do move, by far more than that.
    assert np.abs(given["hessians"] - INITIAL_HESSIAN).max() > 0.05
    assert np.abs(given["means"][-1] - given["start"]).max() > 0.1


@pytest.mark.parametrize("architecture", [DENSE, OneConvolution()])
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_steps_are_those_that_the_reference_package_has_made(
    architecture, temperature, monkeypatch
):
    compare(dict(np.load(FIXTURE)), monkeypatch, architecture, temperature)


def test_steps_are_those_of_the_reference_package(monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("ivon")
    given = problem()
    compare({**given, **reference_steps(**given)}, monkeypatch)


def test_a_prior_as_a_quadratic_about_elsewhere_makes_the_same_steps():
    trainer = trainer_of("ivon", optimizers.create("ivon", {"hessian-decay": 0.9}))
    begun = posterior_of(trainer.network, 1, low=0.05, high=0.2)
    precision = np.full(begun.size, 4.0)
    elsewhere = QuadraticPrior(begun.mean, -precision * begun.mean, precision)
    alike = [
        train(trainer, task_of(begun, prior=prior, likelihood_examples=400))
        for prior in (NormalPrior(0.0, 0.5), elsewhere)
    ]
    for name in ("mean", "variance", "point"):
        one, other = (getattr(result.posterior, name) for result in alike)
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-5)
    # A cavity of less than no precision leaves variances positive.
    less = QuadraticPrior(begun.mean, 0.0 * precision, -precision)
    result = train(trainer, task_of(begun, prior=less, likelihood_examples=400))
    result.posterior.check()


def test_examples_of_the_likelihood_weaken_the_prior_and_point_values_move():
    trainer = trainer_of("ivon", optimizers.create("ivon", {"hessian-decay": 1.0}))
    begun = posterior_of(trainer.network, 1, low=0.05, high=0.2)
    learnt, means = trainer.network.manifest.trainable_points, []
    for examples, variance in ((400, 0.01), (40, 0.1), (40, 0.01)):
        prior = NormalPrior(0.0, variance**0.5)
        found = train(trainer, task_of(begun, prior=prior, likelihood_examples=examples)).posterior
        assert np.abs(found.point - begun.point)[learnt].min() > 1e-4
        means.append(found.mean)
    np.testing.assert_allclose(means[0], means[1], rtol=1e-4, atol=1e-5)
    assert np.abs(means[0] - means[2]).max() > 1e-3


def test_a_sharp_prior_is_not_leapt_over():
    """As with the cavity of a client of few examples: an explicit step is 50 Newton steps there."""
    trainer = trainer_of("ivon", optimizers.create("ivon", {"hessian-decay": 1.0}))
    begun = posterior_of(trainer.network, 1, low=0.014, high=0.014)
    centre = (begun.mean + 0.02).astype(np.float32)
    task = task_of(begun, prior=NormalPrior(centre, 0.014), learning_rate=0.4, epochs=20)
    found = train(trainer, task).posterior
    # Forty examples move it by less than a few deviations of the prior.
    assert np.abs(found.mean - centre).max() < 4 * 0.014
    assert np.abs(found.mean - begun.mean).max() > 0.014


@pytest.mark.parametrize("rounds", [1, 25])
def test_what_is_left_of_the_first_hessian_does_not_depend_on_the_steps(rounds):
    """Of a weight that no example moves, 1/e of it is left after all rounds."""
    trainer = trainer_of("ivon", optimizers.create("ivon", {"hessian-decay": 0.0}))
    posterior = posterior_of(trainer.network, 1, low=0.014, high=0.014)
    begun = posterior.variance
    # Of one example's weight the likelihood says next to nothing about the precision.
    for _ in range(rounds):
        changes = {"epochs": 4, "rounds": rounds, "likelihood_examples": 1}
        task = task_of(posterior, prior=NormalPrior(0.0, 1e3), learning_rate=1e-9, **changes)
        posterior = train(trainer, task).posterior
    np.testing.assert_allclose(begun / posterior.variance, np.exp(-1.0), rtol=0.1)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"inference": "ivon"}, "optimizer 'adam'"),
        ({"strategy": "ws", "optimizer": "ivon"}, "inference 'flipout'"),
        ({"strategy": "ivon", "objective": "proximal"}, "objective 'proximal'"),
        ({"strategy": "ivon", "correction": "scaffold"}, "correction 'scaffold'"),
        ({"strategy": "pvi", "inference": "ivon", "optimizer": "ivon"}, "likelihood-examples"),
        ({"strategy": "ivon", "example-privacy": "dp-sgd", "model": "mlp"}, "example-privacy"),
        ({"strategy": "ivon", "personalization": "alone"}, "likelihood-examples"),
        ({"strategy": "ivon", "pooling": "conflation"}, "likelihood-examples"),
        ({"strategy": "ivon", "pooling": "weighted-conflation"}, "likelihood-examples"),
        ({"strategy": "ivon", "pooling": "dwc"}, "likelihood-examples"),
        ({"personalization": "alone", "personal-optimizer": "ivon"}, "personal-optimizer"),
    ],
)
def test_what_does_not_go_together_is_refused(values, named):
    with pytest.raises(ConfigurationError, match=named):
        resolve(values, check_data=False)


def test_a_decay_that_does_not_fit_the_steps_is_warned_of():
    def warnings(steps, **settings):
        return optimizers.create("ivon", settings).warnings(steps)

    assert warnings(100, **{"hessian-decay": 0.9995})
    assert not warnings(10_000, **{"hessian-decay": 0.9995})
    assert not warnings(1, **{"hessian-decay": 0.0})
