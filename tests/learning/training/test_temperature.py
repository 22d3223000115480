"""Tempered likelihoods, against linear regression, where they are Gaussians that can be written."""

from functools import cache
from typing import Any, ClassVar

import numpy as np
import pytest
from one_layer import OneLayer, task_of

from bfl.learning.augmentations import augmentations
from bfl.learning.inferences import inferences
from bfl.learning.objectives import Term, Value, objectives
from bfl.learning.optimizers import optimizers
from bfl.learning.priors import NormalPrior, priors
from bfl.posteriors import Posterior

pytestmark = pytest.mark.usefixtures("tensorflow")

SHAPE, CLASSES, COUNT = (1, 3, 1), 12, 64
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (COUNT, *SHAPE), dtype=np.uint8)
INPUTS = np.concatenate([IMAGES.reshape(COUNT, 3) / 127.5 - 1, np.ones((COUNT, 1))], axis=1)
LABELS = np.clip(
    np.round(INPUTS @ [2.0, -1.5, 1.0, 5.0] + RNG.normal(0, 0.7, COUNT)), 0, CLASSES - 1
).astype(int)
"""Whole numbers, which the trainer takes for classes and the regression for targets."""

NOISE = 0.7


class Regression(Term):
    """Gaussian noise around the first output, with the divergence."""

    name: ClassVar[str] = "regression"

    def value(self, step: Any, inputs: Any, examples: Any) -> Value:
        from bfl.keras import tf

        errors = step.logits[:, 0] - tf.cast(step.labels, tf.float32)
        loss = tf.reduce_sum(step.weights * tf.square(errors)) / (2 * NOISE**2)
        return Value(loss, step.divergence)


@cache
def trainer_of(temperature: float, objective: Any = None) -> Any:
    from bfl.learning.networks.network import build_network
    from bfl.learning.training.trainer import LocalTrainer

    flipout = inferences.create("flipout")
    network = build_network(OneLayer(normalized=False), flipout, SHAPE, CLASSES)
    return LocalTrainer(
        network,
        COUNT,
        augmentations.create("none"),
        optimizers.create("adam"),
        objective=objective or (Regression(),),
        temperature=temperature,
    )


def of_first_output(vector: Any) -> Any:
    kernel, bias = vector[: 3 * CLASSES].reshape(3, CLASSES), vector[3 * CLASSES :]
    return np.append(kernel[:, 0], bias[0]).astype(np.float64)


def fitted(temperature: float, prior_of: Any) -> Any:
    """Return means and variances of the first output after two rounds, the second one slow.

    Training begins at the least-squares solution: steps of Adam are of the size of the rate, and
    the question is where they stay.
    """
    trainer = trainer_of(temperature)
    manifest = trainer.network.manifest
    solution = np.linalg.lstsq(INPUTS, LABELS, rcond=None)[0]
    mean = np.zeros((4, CLASSES), np.float32)
    mean[:, 0] = solution
    expected = temperature * NOISE**2 / np.square(INPUTS).sum(axis=0)
    variance = np.full(manifest.gaussian_size, expected.mean() * 4, np.float32)
    posterior = Posterior(mean.ravel(), variance)
    for number, (rate, epochs) in enumerate(((2e-2, 1500), (1e-3, 2500)), start=1):
        task = task_of(
            posterior,
            prior=prior_of(Posterior(mean.ravel(), variance)),
            examples=np.arange(COUNT),
            epochs=epochs,
            learning_rate=rate,
            key_labels=(number,),
        )
        posterior = trainer.train(IMAGES, LABELS, task).posterior
    return of_first_output(posterior.mean), of_first_output(posterior.variance)


@pytest.mark.parametrize("temperature", [1.0, 0.05])
def test_without_a_prior_the_tempered_likelihood_is_found(temperature: float) -> None:
    """p(D|θ)^(1/T) is N(least squares, T s² (XᵀX)⁻¹); the nearest q of independent parameters.

    KL[q ‖ p] is least at p's mean and at variances 1 over the diagonal of p's precision,
    T s² / Σ x² = T / (N h), with h the mean second derivative of the loss.
    """
    flat = priors.create("flat")
    mean, variance = fitted(temperature, lambda received: flat.density(received, {}))
    solution = np.linalg.lstsq(INPUTS, LABELS, rcond=None)[0]
    expected = temperature * NOISE**2 / np.square(INPUTS).sum(axis=0)
    np.testing.assert_allclose(variance, expected, rtol=0.25)
    assert (np.abs(mean - solution) < 0.5 * np.sqrt(expected)).all()


def one_step(temperature: float, terms: tuple[str, ...]) -> Any:
    objective = tuple(objectives.create(term, {"proximal-mu": 2.0}) for term in terms)
    trainer = trainer_of(temperature, objective)
    network = trainer.network
    received = Posterior(
        np.full(network.manifest.gaussian_size, 0.3, np.float32),
        np.full(network.manifest.gaussian_size, 0.04, np.float32),
    )
    task = task_of(
        received,
        prior=NormalPrior(0.0, 0.5),
        examples=np.arange(COUNT),
        epochs=1,
        learning_rate=1e-3,
        start=Posterior(received.mean + 0.5, received.variance),
    )
    return trainer.train(IMAGES, LABELS, task)


@pytest.mark.parametrize("terms", [("elbo",), ("elbo", "proximal")])
def test_the_likelihood_of_any_objective_is_tempered(terms: tuple[str, ...]) -> None:
    """The objective, times 1/T, has NLL / T and the rest whole: NLL + T · rest."""
    warm, cold = one_step(1.0, terms), one_step(0.25, terms)
    assert warm.negative_log_likelihood == cold.negative_log_likelihood
    rest = warm.objective - warm.negative_log_likelihood
    assert rest > 1e-3
    np.testing.assert_allclose(
        cold.objective, cold.negative_log_likelihood + 0.25 * rest, rtol=1e-5
    )
    assert cold.divergence == warm.divergence
    assert cold.posterior.digest() != warm.posterior.digest()
