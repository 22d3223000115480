"""The small convolutional network against the paper's numbers and a forward pass in NumPy."""

import numpy as np
import pytest

from bfl.errors import ConfigurationError
from bfl.learning.inferences import inferences
from bfl.learning.models import architectures, create_architecture

pytestmark = pytest.mark.usefixtures("tensorflow")

CIFAR, FASHION, SMALLEST = (32, 32, 3), (28, 28, 1), (16, 16, 1)


def build(inference, shape=SMALLEST, classes=10, **settings):
    from bfl.learning.networks.network import build_network

    chosen = inferences.create(inference, settings)
    return build_network(create_architecture("convolutional"), chosen, shape, classes)


def random_point(manifest, seed=0):
    return np.random.default_rng(seed).normal(0, 0.1, manifest.point_size).astype(np.float32)


@pytest.mark.parametrize("word", ["simple-cnn", "lenet5", "LeNet5"])
def test_it_goes_by_the_names_of_its_sources(word):
    assert isinstance(create_architecture(word), architectures.get("convolutional"))


@pytest.mark.parametrize(
    ("shape", "flat", "classes"),
    [(CIFAR, 400, 10), (FASHION, 256, 10), (SMALLEST, 16, 10), ((33, 47, 3), 640, 4)],
)
def test_parameters_are_those_of_the_paper(shape, flat, classes):
    network = build("deterministic", shape, classes)
    assert {p.name: p.shape for p in network.manifest} == {
        "conv1/kernel": (5, 5, shape[2], 6),
        "conv1/bias": (6,),
        "conv2/kernel": (5, 5, 6, 16),
        "conv2/bias": (16,),
        "dense1/kernel": (flat, 120),
        "dense1/bias": (120,),
        "dense2/kernel": (120, 84),
        "dense2/bias": (84,),
        "logits/kernel": (84, classes),
        "logits/bias": (classes,),
    }


def test_it_comes_in_one_depth():
    with pytest.raises(ConfigurationError, match="'convolutional' comes in one depth only"):
        create_architecture("convolutional5")
    with pytest.raises(ConfigurationError, match=r"allowed: .*convolutional.*resnet16"):
        create_architecture("vgg16")
    with pytest.raises(ConfigurationError, match="'lenet4'; did you mean 'lenet5'"):
        create_architecture("lenet4")


def test_size_is_that_of_the_networks_source():
    # Li et al.'s SimpleCNN for CIFAR-10: 456 + 2416 + 48120 + 10164 + 850.
    assert build("deterministic", CIFAR).manifest.point_size == 62_006


@pytest.mark.parametrize("inference", [i.name for i in inferences.classes() if i.gaussian])
def test_only_dense_layers_are_variational_on_demand(inference):
    everything = build(inference).manifest
    assert {p.name for p in everything.point} == set()
    manifest = build(inference, **{"variational-layers": "dense"}).manifest
    assert [p.name for p in manifest] == [p.name for p in everything]
    assert {p.name.split("/")[0] for p in manifest.gaussian} == {"dense1", "dense2", "logits"}
    assert {p.name.split("/")[0] for p in manifest.point} == {"conv1", "conv2"}


def forward_in_numpy(parameters, images):
    """Logits as the paper writes them: convolution, ReLU, pooling, twice; then the dense layers."""

    def convolution(x, name):
        windows = np.lib.stride_tricks.sliding_window_view(x, (5, 5), axis=(1, 2))
        kernel = parameters[f"{name}/kernel"]
        return np.einsum("nhwcij,ijco->nhwo", windows, kernel) + parameters[f"{name}/bias"]

    def pooled(x):
        n, h, w, c = x.shape
        cut = x[:, : h // 2 * 2, : w // 2 * 2]
        return cut.reshape(n, h // 2, 2, w // 2, 2, c).max(axis=(2, 4))

    def dense(x, name):
        return x @ parameters[f"{name}/kernel"] + parameters[f"{name}/bias"]

    x = pooled(np.maximum(convolution(images, "conv1"), 0))
    x = pooled(np.maximum(convolution(x, "conv2"), 0)).reshape(len(images), -1)
    x = np.maximum(dense(x, "dense1"), 0)
    return dense(np.maximum(dense(x, "dense2"), 0), "logits")


@pytest.mark.parametrize("shape", [CIFAR, FASHION, (17, 22, 2)])
def test_forward_pass_is_that_of_the_paper(shape):
    network = build("deterministic", shape)
    point = random_point(network.manifest)
    network.load_values(network.manifest, np.zeros(0, np.float32), point)
    images = np.random.default_rng(1).uniform(-1, 1, (3, *shape)).astype(np.float32)
    logits = network.logits(images, np.zeros(2, np.int32), training=False).numpy()
    parts = network.manifest.split(point.astype(np.float64), gaussian=False)
    parameters = {p.name: part for p, part in zip(network.manifest, parts, strict=True)}
    expected = forward_in_numpy(parameters, images.astype(np.float64))
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
    assert np.abs(expected).max() > 0.1


@pytest.mark.parametrize("layers", ["all", "dense"])
@pytest.mark.parametrize("inference", inferences.names())
def test_every_inference_is_the_same_architecture(inference, layers):
    """With next to no variance and no dropout, all give the logits of point weights."""
    from bfl.posteriors import Posterior

    points = build("deterministic")
    values = random_point(points.manifest)
    images = np.random.default_rng(1).uniform(-1, 1, (4, *SMALLEST)).astype(np.float32)
    key = np.array([3, 4], np.int32)
    points.load_values(points.manifest, np.zeros(0, np.float32), values)
    expected = points.logits(images, key, training=False).numpy()
    settings = {"variational-layers": layers, "dropout-rate": 0.0}
    network = build(inference, **settings)
    by_name = dict(
        zip(
            [p.name for p in points.manifest],
            points.manifest.split(values, gaussian=False),
            strict=True,
        )
    )

    def join(parameters):
        return np.concatenate(
            [np.zeros(0, np.float32)] + [by_name[p.name].ravel() for p in parameters]
        )

    size = network.manifest.gaussian_size
    posterior = Posterior(
        join(network.manifest.gaussian),
        np.full(size, 1e-12, np.float32),
        join(network.manifest.point),
    )
    network.load(posterior)
    logits = network.logits(images, key, training=True).numpy()
    np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_a_network_with_point_convolutions_predicts_with_drawn_dense_layers():
    from bfl.evaluation.prediction.monte_carlo import Predictor

    network = build("reparameterization", **{"variational-layers": "dense"})
    predicts = Predictor(network, create_architecture("convolutional"))
    images = np.random.default_rng(0).integers(0, 256, (5, *SMALLEST), dtype=np.uint8)
    predictions = predicts.predict(
        network.initial_posterior(0), images, samples=4, seed=0, labels=("test",)
    )
    assert predictions.samples == 4
    assert (predictions.epistemic > 0).all()


def test_images_in_the_unit_range_are_those_of_pixels_over_255(tensorflow):
    from bfl.learning.networks.network import build_network, normalized_images

    networks = [
        build_network(
            create_architecture("convolutional", {"input-range": word}),
            inferences.create("deterministic"),
            (16, 16, 1),
            10,
        )
        for word in ("symmetric", "unit")
    ]
    assert networks[0].manifest == networks[1].manifest
    posterior = networks[0].initial_posterior(0)
    pixels = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 1)).astype(np.uint8)
    key = np.array([1, 2], np.int32)
    for network in networks:
        network.load(posterior)
    unit = networks[1].logits(normalized_images(pixels), key, training=False).numpy()
    inputs = (pixels / 255).astype(np.float32)
    expected = networks[0].logits(inputs, key, training=False).numpy()
    np.testing.assert_allclose(unit, expected, atol=1e-5)
