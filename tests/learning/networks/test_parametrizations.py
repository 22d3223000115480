"""Log-variances, their clamp, point biases: what the code of Ozer et al. has in place of ρ."""

import numpy as np
import pydantic
import pytest
from one_layer import task_of
from small_network import build

from bfl.learning.inferences import inferences
from bfl.learning.networks.parametrizations import LogVariance
from bfl.posteriors import Manifest, Parameter

pytestmark = pytest.mark.usefixtures("tensorflow")

KEY = np.array([1, 2], np.int32)
AS_CODED = {
    "variational-layers": "dense",
    "scale-parametrization": "log-variance",
    "log-variance-clamp": 8.0,
    "biases": "point",
    "initial-means": "lecun-normal",
    "initial-scale": float(np.exp(-4.5)),
}


def layer_with(alpha, layer="reparameterized", clamp=8.0, point_biases=True):
    from bfl.learning.networks.layers import Form, KeyedDenseFlipout, ReparameterizedDense

    kinds = {"reparameterized": ReparameterizedDense, "flipout": KeyedDenseFlipout}
    made = kinds[layer](4, form=Form(LogVariance(clamp), point_biases))
    made.build((None, 5))
    kernel = made.kernel_posterior.distribution
    kernel.loc.assign(np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32))
    kernel.scale.pretransformed_input.assign(np.full((5, 4), alpha, np.float32))
    return made


def gradients(layer):
    """Return the gradients of the squared outputs and of the deviations, by log-variances."""
    from bfl.keras import tf
    from bfl.learning.networks.layers import keyed

    alpha = layer.kernel_posterior.distribution.scale.pretransformed_input
    inputs = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)
    with tf.GradientTape(persistent=True) as tape, keyed(KEY):
        squares = tf.reduce_sum(tf.square(layer(inputs)))
        deviations = tf.reduce_sum(layer.standard_deviations[0])
    return [tape.gradient(value, alpha).numpy() for value in (squares, deviations)]


@pytest.mark.parametrize("variance", [1e-30, 1e-8, np.exp(-9.0), 1.0, 1e6])
def test_log_variances_are_held_as_they_are(variance):
    for clamp in (0.0, 8.0):
        form = LogVariance(clamp)
        assert form.variance(form.untransformed(variance)) == pytest.approx(variance, rel=1e-12)
        assert float(form.untransformed(variance)) == pytest.approx(np.log(variance))
    assert np.isfinite(LogVariance().untransformed(np.array([0.0, -1.0]))).all()


@pytest.mark.parametrize("layer", ["reparameterized", "flipout"])
@pytest.mark.parametrize(("alpha", "moves"), [(-9.0, False), (-8.1, False), (-7.9, True)])
def test_what_lies_outside_the_clamp_has_no_gradient(layer, alpha, moves):
    for gradient in gradients(layer_with(alpha, layer)):
        assert np.all(gradient != 0) if moves else np.all(gradient == 0)
    for gradient in gradients(layer_with(alpha, layer, clamp=0.0)):
        assert np.all(gradient != 0)


@pytest.mark.parametrize(("clamp", "expected"), [(8.0, -8.0), (0.0, -9.0)])
def test_the_network_computes_with_the_clamped_variance(clamp, expected):
    from bfl.learning.networks.layers import keyed

    layer = layer_with(-9.0, clamp=clamp)
    inputs = np.ones((20_000, 5), np.float32)
    with keyed(KEY):
        outputs = layer(inputs).numpy().astype(np.float64)
    assert len(layer.standard_deviations) == 1, "the bias is a point"
    ratio = outputs.var(axis=0) / (5 * np.exp(expected) + 1e-8)
    np.testing.assert_allclose(ratio, 1, atol=5 * np.sqrt(2 / 20_000))


@pytest.mark.parametrize(("word", "share"), [("he-normal", 2.0), ("lecun-normal", 1.0)])
def test_initial_means_have_the_variance_that_is_asked_for(word, share):
    manifest = Manifest((Parameter("a", (400, 50), True, word),))
    mean = manifest.initial_posterior(0, 0.1).mean
    assert mean.var() * 400 == pytest.approx(share, rel=0.05)


def test_xavier_is_uniform_within_the_published_code_s_limits():
    """PyTorch's ``xavier_uniform_``: of a 3x3 convolution fans are 9 times the channels."""
    for shape, limit in (((3, 3, 32, 64), np.sqrt(6 / (9 * 96))), ((400, 50), np.sqrt(6 / 450))):
        manifest = Manifest((Parameter("a", shape, False, "xavier-uniform"),))
        found = manifest.initial_posterior(0, 1.0).point
        assert np.abs(found).max() == pytest.approx(limit, rel=1e-3)
        assert found.var() == pytest.approx(limit**2 / 3, rel=0.05)


@pytest.mark.parametrize("name", ["deterministic", "flipout"])
def test_kernels_begin_as_asked_in_every_inference(name):
    network = build("convnet", name, (20, 20, 1), **{"initial-means": "xavier-uniform"})
    found = {p.name.rpartition("/")[2]: p.initialization for p in network.manifest}
    assert found == {"kernel": "xavier-uniform", "bias": "zeros"}


def test_variances_at_the_end_of_float32_have_finite_gradients():
    """Where rules that divide the variance end without a floor: training goes on."""
    smallest = LogVariance(0.0).untransformed(np.float32([np.finfo(np.float32).tiny]))[0]
    layer = layer_with(float(smallest), clamp=0.0, point_biases=False)
    bias = layer.bias_posterior.distribution.scale.pretransformed_input
    bias.assign(np.full(bias.shape, smallest, np.float32))
    for gradient in gradients(layer):
        assert np.isfinite(gradient).all()


def test_a_clamp_needs_log_variances():
    with pytest.raises(pydantic.ValidationError, match="scale-parametrization is 'log-variance'"):
        inferences.create("flipout", {"log-variance-clamp": 8.0})
    settings = {"scale-parametrization": "log-variance", "log-variance-clamp": -1.0}
    with pytest.raises(pydantic.ValidationError, match="log-variance-clamp"):
        inferences.create("flipout", settings)


def decayed(alpha, steps):
    """What PyTorch's SGD makes of a log-variance without a gradient, in float32."""
    value, velocity = np.float32(alpha), np.float32(0)
    for _ in range(steps):
        velocity = np.float32(0.9) * velocity + np.float32(1e-5) * value
        value = value - np.float32(0.01) * velocity
    return value


@pytest.mark.slow
def test_training_as_coded_moves_log_variances_by_weight_decay_alone():
    from bfl.learning.augmentations import augmentations
    from bfl.learning.optimizers import optimizers
    from bfl.learning.training.trainer import LocalTrainer

    network = build("convolutional", "reparameterization", (16, 16, 1), **AS_CODED)
    gaussian = {parameter.name for parameter in network.manifest.gaussian}
    assert gaussian == {"dense1/kernel", "dense2/kernel", "logits/kernel"}
    start = network.initial_posterior(0)
    np.testing.assert_allclose(np.log(start.variance), -9, atol=1e-5)
    optimizer = optimizers.create("sgd", {"weight-decay-of": "everything"})
    trainer = LocalTrainer(network, 2, augmentations.create("none"), optimizer)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (4, 16, 16, 1)).astype(np.uint8)
    task = task_of(start, examples=np.arange(4), epochs=60, learning_rate=0.01)
    result = trainer.train(images, rng.integers(0, 10, 4), task)
    assert result.steps == 120
    assert np.abs(result.posterior.mean - start.mean).max() > 0.01
    np.testing.assert_allclose(
        np.log(result.posterior.variance.astype(np.float64)), decayed(-9.0, 120), atol=2e-6
    )
    assert decayed(-9.0, 120) > -9 + 0.0009
