"""A network as a function of posteriors: in and out, the divergence, the beginning, the cache."""

from dataclasses import replace

import numpy as np
import pytest
from small_network import build

from bfl.errors import PosteriorError
from bfl.learning.inferences import inferences
from bfl.learning.models import architectures
from bfl.learning.priors import NormalPrior
from bfl.posteriors import Posterior

pytestmark = pytest.mark.usefixtures("tensorflow")

SHAPE = (8, 8, 1)
INFERENCES = ("deterministic", "flipout", "mc-dropout")
IMAGES = np.random.default_rng(0).uniform(-1, 1, (5, *SHAPE)).astype(np.float32)
KEY = np.array([1, 2], np.int32)


@pytest.fixture(scope="module")
def flipout(tensorflow):
    return build("resnet8", "flipout")


def random_posterior(manifest, seed=0, low=1e-4, high=1.0):
    rng = np.random.default_rng(seed)
    size = manifest.gaussian_size
    variance = np.exp(rng.uniform(np.log(low), np.log(high), size))
    vectors = rng.normal(size=size), variance, rng.uniform(0.5, 2, manifest.point_size)
    return Posterior(*(vector.astype(np.float32) for vector in vectors))


def divergence(network, times=1):
    for _ in range(times):
        network.logits(IMAGES, KEY, training=True)
    return float(network.divergence())


def closed_form(posterior, mean, scale):
    """Σ KL(N(μ, σ²) ‖ N(m, s²)) in float64, written out."""
    mu, variance = posterior.mean.astype(np.float64), posterior.variance.astype(np.float64)
    m, s = np.asarray(mean, np.float64), np.asarray(scale, np.float64)
    terms = np.log(s / np.sqrt(variance)) + (variance + (mu - m) ** 2) / (2 * s**2) - 0.5
    return terms.sum()


def by_name(network, posterior):
    manifest = network.manifest
    parts = zip(
        (*manifest.gaussian, *manifest.point),
        (
            *manifest.split(posterior.mean, gaussian=True),
            *manifest.split(posterior.point, gaussian=False),
        ),
        strict=True,
    )
    return {parameter.name: part for parameter, part in parts}


@pytest.mark.parametrize("scale", [10.0, 1.0, 0.3])
@pytest.mark.parametrize("layers", ["all", "dense"])
@pytest.mark.parametrize("inference", ["flipout", "reparameterization"])
def test_divergence_from_a_fixed_prior_is_the_closed_form(inference, layers, scale):
    network = build("resnet8", inference, **{"variational-layers": layers})
    posterior = random_posterior(network.manifest)
    network.load(posterior)
    network.set_prior(NormalPrior(0.0, scale))
    expected = closed_form(posterior, 0.0, scale)
    assert divergence(network) == pytest.approx(expected, rel=1e-5)
    # It is that of the last call, not of all calls.
    assert divergence(network, times=3) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("inference", ["deterministic", "mc-dropout"])
def test_divergence_of_points_is_0_and_a_prior_does_nothing(inference):
    network = build("resnet8", inference)
    network.set_prior(NormalPrior(0.0, 10.0))
    assert divergence(network) == 0.0


@pytest.mark.parametrize("inference", INFERENCES)
def test_posterior_that_is_loaded_comes_out_again(inference):
    network = build("resnet8", inference)
    posterior = random_posterior(network.manifest, low=1e-12, high=10.0)
    network.load(posterior)
    result = network.posterior()
    np.testing.assert_array_equal(result.mean, posterior.mean)
    np.testing.assert_array_equal(result.point, posterior.point)
    np.testing.assert_allclose(result.variance, posterior.variance, rtol=1e-5)
    assert {v.dtype for v in (result.mean, result.variance, result.point)} == {np.dtype("f4")}
    # What has been through once goes through unchanged.
    network.load(result)
    np.testing.assert_allclose(network.posterior().variance, result.variance, rtol=1e-6)


def test_manifest_says_what_lies_where(flipout):
    posterior = random_posterior(flipout.manifest)
    flipout.load(posterior)
    normal = flipout.model.get_layer("conv3_1b").kernel_posterior.distribution
    norm = flipout.model.get_layer("conv3_1b_norm")
    values = by_name(flipout, posterior)
    deviations = by_name(flipout, replace(posterior, mean=np.sqrt(posterior.variance)))
    np.testing.assert_array_equal(normal.loc, values["conv3_1b/kernel"])
    np.testing.assert_allclose(normal.scale, deviations["conv3_1b/kernel"], rtol=1e-5)
    for part, variable in (
        ("scale", norm.gamma),
        ("offset", norm.beta),
        ("moving_mean", norm.moving_mean),
        ("moving_variance", norm.moving_variance),
    ):
        np.testing.assert_array_equal(values[f"conv3_1b_norm/{part}"], variable)


@pytest.mark.parametrize("inference", INFERENCES)
def test_every_variable_is_in_the_manifest_once(inference):
    network = build("resnet8", inference)
    weights = sum(int(np.prod(w.shape)) for w in network.model.weights)
    # A Gaussian parameter has two variables.
    assert weights == 2 * network.manifest.gaussian_size + network.manifest.point_size
    names = [p.name for p in network.manifest]
    assert len(set(names)) == len(names)


def test_what_is_refused_changes_nothing(flipout):
    right = random_posterior(flipout.manifest)
    flipout.load(right)
    before = flipout.posterior()
    for wrong in (
        replace(right, point=right.point[:-1]),
        replace(right, variance=-right.variance),
        build("resnet8", "deterministic").initial_posterior(0),
    ):
        with pytest.raises(PosteriorError):
            flipout.load(wrong)
    assert flipout.posterior().digest() == before.digest()


def test_beginning_is_keyed_by_seed_and_by_nothing_else(flipout):
    from bfl.learning.networks.network import Network

    first = flipout.initial_posterior(3)
    build("resnet14", "deterministic")
    flipout.load(random_posterior(flipout.manifest))
    again = Network(architectures.create("resnet8"), inferences.create("flipout"), SHAPE, 10)
    assert again.manifest == flipout.manifest
    assert again.initial_posterior(3).digest() == first.digest()
    assert flipout.initial_posterior(3).digest() == first.digest()
    assert flipout.initial_posterior(4).digest() != first.digest()
    # By name: the same means whatever the inference, and the same first layers of a deeper one.
    begun = by_name(flipout, first)
    names = (("resnet8", "deterministic"), ("resnet8", "mc-dropout"), ("resnet14", "flipout"))
    for other in (build(*words) for words in names):
        values = by_name(other, other.initial_posterior(3))
        assert begun.keys() <= values.keys()
        for name, value in begun.items():
            np.testing.assert_array_equal(values[name], value)


def test_beginning_is_he_normal(flipout):
    begun = by_name(flipout, flipout.initial_posterior(0))
    kernels = {name: value for name, value in begun.items() if name.endswith("/kernel")}
    assert len(kernels) == 8
    standardized = []
    for name, value in kernels.items():
        fan_in = np.prod(value.shape[:-1])
        assert fan_in == (64 if name == "logits/kernel" else 9 * value.shape[2])
        scaled = value.ravel().astype(np.float64) / np.sqrt(2 / fan_in)
        assert np.mean(scaled**2) == pytest.approx(1, abs=5 * np.sqrt(2 / scaled.size))
        assert abs(scaled.mean()) < 5 / np.sqrt(scaled.size)
        standardized.append(scaled)
    # Kernels of one shape do not begin alike.
    assert not np.isclose(begun["conv2_1a/kernel"], begun["conv2_1b/kernel"]).mean() > 0.01
    everything = np.concatenate(standardized)
    assert np.mean(everything**4) == pytest.approx(3, abs=0.15)  # normal, not truncated
    for name, value in begun.items():
        ending = name.rsplit("/", 1)[1]
        if ending != "kernel":
            assert (value == (1 if ending in ("scale", "moving_variance") else 0)).all(), name


@pytest.mark.parametrize("inference", INFERENCES)
def test_moving_variances_and_nothing_else_have_a_minimum(inference):
    manifest = build("resnet8", inference).manifest
    expected = {p.name for p in manifest if p.name.endswith("/moving_variance")}
    assert len(expected) > 3
    assert {p.name for p in manifest if p.minimum is not None} == expected
    assert {p.minimum for p in manifest if p.name in expected} == {0.0}
    start = manifest.initial_posterior(0, 0.1)
    with pytest.raises(PosteriorError, match="moving_variance"):
        manifest.check(Posterior(start.mean, start.variance, -start.point))
