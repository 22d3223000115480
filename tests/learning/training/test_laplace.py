"""A Laplace approximation around weights that are trained as points, on known answers."""

import numpy as np
import pytest
from one_layer import IMAGES, LABELS, SHAPE, OneLayer, posterior_of, task_of, train, trainer_of
from scipy.special import expit, softmax

from bfl.configuration import resolve
from bfl.errors import ConfigurationError
from bfl.learning.inferences import inferences

pytestmark = pytest.mark.usefixtures("tensorflow")

ONES = np.ones(40)

INPUTS = IMAGES.reshape(40, -1) / 127.5 - 1.0
SQUARES = np.concatenate([INPUTS, np.ones((40, 1))], axis=1) ** 2  # the last is the bias's


def curvature_of(outputs, of_numbers, weights):
    """Return E_y[d²(−log p(y)) / da²] of outputs a (N, C), summed over inputs: bias and kernel."""
    of_outputs = softmax(outputs, axis=1) * (1 - softmax(outputs, axis=1))
    if of_numbers:  # of a mean, and of a variance softplus(ρ)
        variance = np.logaddexp(0, outputs[:, 1])
        of_outputs = np.stack([1 / variance, 0.5 * (expit(outputs[:, 1]) / variance) ** 2], axis=1)
    each = (SQUARES * weights[:, None]).T @ of_outputs
    return np.concatenate([each[:-1].ravel(), each[-1]])


@pytest.mark.parametrize(("classes", "size"), [(3, 1), (3, 7), (2, 1)])
def test_the_information_is_the_curvature_of_a_linear_model(classes, size):
    """Without bias, in parts of one example and of several, of classes and of numbers."""
    from bfl.keras import tf
    from bfl.learning.networks.network import Network
    from bfl.learning.training.learner import filled_batches, fisher_information

    network = Network(OneLayer(normalized=False), inferences.create("laplace"), SHAPE, classes)
    begun = posterior_of(network, 1)
    network.load(begun)
    kernel, bias = begun.mean[:-classes].reshape(4, classes), begun.mean[-classes:]
    weights = np.linspace(0.1, 2.0, 40, dtype=np.float32)
    expected = curvature_of(INPUTS @ kernel + bias, classes == 2, weights)
    labels = tf.constant(LABELS if classes == 3 else LABELS.astype(np.float32))
    parts, present = filled_batches(np.arange(40), size)
    given = tf.constant(IMAGES), labels, parts, present * weights[parts]
    information = fisher_information(network)
    drawn = [information(*given, np.array([3, n], np.int32)) / expected for n in range(100)]
    error = np.std(drawn, axis=0) / 10
    assert (np.abs(np.mean(drawn, axis=0) - 1) < 4.5 * error + 1e-5).all()
    assert error.max() < 0.2


def test_a_client_sends_the_variances_that_the_information_and_the_prior_give():
    trainer = trainer_of("laplace", normalized=False, temperature=0.5)
    begun = posterior_of(trainer.network, 1)
    expected = curvature_of(INPUTS @ begun.mean[:12].reshape(4, 3) + begun.mean[12:], False, ONES)
    found = []
    for number in range(100):
        task = task_of(begun, learning_rate=0.0, key_labels=(number, 0), epochs=1)
        sent = train(trainer, task).posterior
        np.testing.assert_array_equal(sent.mean, begun.mean)
        found.append(0.5 * (1.0 / sent.variance.astype(float) - 1.0 / 0.05**2))
    np.testing.assert_allclose(np.mean(found, axis=0) / expected, 1.0, atol=0.15)


@pytest.mark.parametrize("strategy", ["pvi", "fedprox", "dwc"])
def test_what_asks_for_another_prior_or_distance_is_refused(strategy):
    with pytest.raises(ConfigurationError, match="fitted after training"):
        resolve({"strategy": strategy, "inference": "laplace"}, check_data=False)
