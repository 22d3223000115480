"""An architecture built with an inference: a Keras model that takes and gives posteriors."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.keras import keras, tf
from bfl.learning.inferences import Inference, inferences
from bfl.learning.models.base import Architecture
from bfl.learning.networks.layers import (
    ParameterVariables,
    Precision,
    VariationalLayer,
    computing_in,
    keyed,
)
from bfl.learning.priors import Density, Standardized
from bfl.posteriors import Manifest, Posterior

Array = npt.NDArray[np.floating]


class Network:
    """An architecture built with an inference: a Keras model that takes and gives posteriors.

    Attributes:
        model: The Keras model, from images (N, H, W, C) in [−1, 1] to logits (N, classes).
        manifest: Which parameter lies where in the posterior's vectors.
    """

    def __init__(
        self,
        architecture: Architecture,
        inference: Inference,
        image_shape: tuple[int, int, int],
        classes: int,
        precision: Precision = "float32",
    ) -> None:
        self.inference = inference
        self.parametrization = inference.parametrization
        self.image_shape = image_shape
        self.classes = classes
        with computing_in(precision):
            # No layer decides by a tensor's value, and AutoGraph takes long to find that out.
            build = tf.autograph.experimental.do_not_convert(architecture.build)
            self.model = build(inference, image_shape, classes)
        of_layers = map(self._of_layer, self.model.layers)
        self._parameters = tuple(variables for each in of_layers for variables in each)
        self._gaussian = tuple(p for p in self._parameters if p.untransformed_scale is not None)
        self._point = tuple(p for p in self._parameters if p.untransformed_scale is None)
        self.manifest = Manifest(tuple(p.parameter for p in self._parameters))
        layers = self.model.layers
        self._variational = tuple(each for each in layers if isinstance(each, VariationalLayer))
        self._prior = PriorVariables(self.manifest.gaussian_size)
        # As graphs: one by one, variables cost as much as a small network's training.
        self._vectors = self.means, self.untransformed_scales, [p.value for p in self._point]
        vector = tf.TensorSpec([None], tf.float32)
        self._assign = tf.function(self._assign_vectors, [vector] * 3, autograph=False)
        self._read = tf.function(self._read_vectors, autograph=False)
        self._joined: dict[str, Any] = {}

    def _of_layer(self, layer: Any) -> list[ParameterVariables]:
        if isinstance(layer, keras.layers.BatchNormalization | keras.layers.GroupNormalization):
            affine = [
                ParameterVariables(f"{layer.name}/scale", "ones", value=layer.gamma),
                ParameterVariables(f"{layer.name}/offset", "zeros", value=layer.beta),
            ]
            if isinstance(layer, keras.layers.GroupNormalization):
                return affine
            mean, variance = f"{layer.name}/moving_mean", f"{layer.name}/moving_variance"
            return [
                *affine,
                ParameterVariables(mean, "zeros", value=layer.moving_mean),
                ParameterVariables(variance, "ones", value=layer.moving_variance, minimum=0.0),
            ]
        return self.inference.parameters(layer)

    @property
    def trainable_variables(self) -> list[Any]:
        """The Keras variables that training changes."""
        return list(self.model.trainable_variables)

    @property
    def untransformed_scales(self) -> list[Any]:
        """The variables that hold untransformed scales, ρ or log σ²."""
        return [p.untransformed_scale for p in self._gaussian]

    @property
    def means(self) -> list[Any]:
        """The variables that hold the means of Gaussian parameters, as ``untransformed_scales``."""
        return [p.value for p in self._gaussian]

    @property
    def kernels(self) -> list[Any]:
        """The variables that hold kernels, or their means: no biases and no normalisation."""
        return [p.value for p in self._parameters if p.name.endswith("/kernel")]

    def initial_posterior(self, seed: int) -> Posterior:
        """Return the posterior that a federation with this network begins with."""
        return self.manifest.initial_posterior(seed, self.inference.initial_standard_deviation)

    def load(self, posterior: Posterior) -> None:
        """Set the network's weights to a posterior; one of another form is a PosteriorError."""
        posterior.check_form(self.manifest.gaussian_size, self.manifest.point_size)
        posterior.check()
        untransformed = self.parametrization.untransformed(posterior.variance)
        self._assign(posterior.mean, untransformed, posterior.point)

    def _assign_vectors(self, *vectors: Any) -> None:
        for variables, vector in zip(self._vectors, vectors, strict=True):
            sizes = [variable.shape.num_elements() for variable in variables]
            parts = tf.split(vector, sizes) if sizes else []
            for variable, part in zip(variables, parts, strict=True):
                variable.assign(tf.reshape(part, variable.shape))

    def _read_vectors(self) -> list[Any]:
        flat = [[tf.reshape(v, [-1]) for v in variables] for variables in self._vectors]
        return [tf.concat([tf.zeros([0]), *parts], axis=0) for parts in flat]

    def load_values(self, manifest: Manifest, values: Array, point: Array) -> None:
        """Set a network of points to values (D,) and point (P,) of another manifest's parameters.

        That manifest has the same names; of its Gaussian parameters one draw is given.
        """
        named: dict[str, Any] = {}
        for gaussian, vector in ((True, values), (False, point)):
            parameters = manifest.gaussian if gaussian else manifest.point
            parts = manifest.split(vector, gaussian=gaussian)
            named |= {p.name: np.ravel(part) for p, part in zip(parameters, parts, strict=True)}
        self._assign(*np.zeros((2, 0)), np.concatenate([named[p.name] for p in self._point]))

    def copy_values(self, other: Network) -> None:
        """Set a network of points of the same names to this one's means and points."""
        values = {p.name: p.value for p in self._parameters}
        for parameter in other._parameters:
            parameter.value.assign(values[parameter.name])

    def set_prior(self, prior: Density) -> None:
        """Set the prior that ``divergence`` is taken from; nothing is traced again."""
        self._prior.assign(prior.standardize())

    def posterior(self) -> Posterior:
        """Return the network's weights as a posterior of float32 vectors."""
        mean, untransformed, point = (vector.numpy() for vector in self._read())
        variance = self.parametrization.variance(untransformed).astype(np.float32)
        return Posterior(mean=mean, variance=variance, point=point)

    def logits(self, images: Any, key: Any, *, training: bool) -> Any:
        """Return float32 logits (N, classes), the layers' random draws keyed by ``key`` (2,)."""
        self._joined.clear()  # a graph of its own
        with keyed(key):
            return tf.cast(self.model(images, training=training), tf.float32)

    def divergence(self) -> Any:
        """Return KL[q(θ) ‖ p(θ)] in nats, up to a constant where p is no density; 0 of points.

        It takes the standard deviations of the graph's last ``logits`` or ``take_deviations``.
        """
        if not self._gaussian or self.inference.fits_variances:
            return tf.zeros([])
        return self._prior.divergence(*self._mean_and_deviation())

    def take_deviations(self) -> None:
        """Have divergences take the standard deviations as they are now, without any images."""
        self._joined.clear()  # a graph of its own
        for layer in self._variational:
            layer.take_deviations()

    def divergence_from(self, mean: Any, scale: Any) -> Any:
        """Return KL[q(θ) ‖ N(mean, scale²)] for tensors (D,), as ``divergence``."""
        if not self._gaussian or self.inference.fits_variances:
            return tf.zeros([])
        return divergence(*self._mean_and_deviation(), mean, scale)

    def trainable_points(self) -> Any:
        """Return the point parameters that training moves by their gradient, as one tensor."""
        trained = [p.value for p in self._point if p.parameter.trainable]
        return self._copy("point", lambda: trained) if trained else tf.zeros([0])

    def places(self) -> list[tuple[Any, str, slice]]:
        """Return variables, each with its vector, ``mean`` or ``point``, and its slice of it."""
        found = []
        for name, parameters in (("mean", self._gaussian), ("point", self._point)):
            start = 0
            for parameter in parameters:
                end = start + parameter.parameter.size
                found.append((parameter.value, name, slice(start, end)))
                start = end
        return found

    def _mean_and_deviation(self) -> tuple[Any, Any]:
        layers = self._variational
        mean = self._copy("mean", lambda: self.means)
        return mean, self._copy(
            "deviation", lambda: [s for v in layers for s in v.standard_deviations]
        )

    def _copy(self, name: str, tensors: Callable[[], list[Any]]) -> Any:
        # Of each call a copy of what is before it: however many terms an objective has, a gradient
        # is then a sum of two again and again, and those have the same bits in either order.
        # TensorFlow adds three in an order that differs between processes.
        last = self._joined.get(name)
        if last is None:
            joined = tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors()], axis=0)
        else:
            joined = tf.identity(last)
        self._joined[name] = joined
        return tf.identity(joined)


def build_network(
    architecture: Architecture,
    inference: Inference,
    image_shape: tuple[int, int, int],
    classes: int,
    precision: Precision = "float32",
    role: str = "",
) -> Network:
    """Return the network, built at most once per process for all clients and rounds.

    ``role`` tells networks apart that are alike and hold their weights at the same time.
    """
    return _build_network(role, architecture, inference, image_shape, classes, precision)


# By itself, since a cache tells a default from the same value given. Room for the architectures of
# a federation's personal models, besides the global one.
@lru_cache(maxsize=32)
def _build_network(role: str, *network: Any) -> Network:
    return Network(*network)


def build_predictor(
    network: Network,
    architecture: Architecture,
    precision: Precision = "float32",
    role: str = "",
    *,
    drawn: bool = True,
) -> Network:
    """Return the network that predicts with one θ at a time: plain layers where possible.

    Not ``drawn`` it has plain layers without dropout, of which a network's mean is one.
    """
    inference = network.inference
    name = inference.predictor if drawn else "deterministic"
    if not drawn or name != inference.name:
        inference = inferences.create(name)
    shape, classes = network.image_shape, network.classes
    return build_network(architecture, inference, shape, classes, precision, role)


def normalized_images(images: Any) -> Any:
    """Return images, uint8 or float32 with 0 black and 255 white, as floats in [−1, 1]."""
    return tf.cast(images, tf.float32) / 127.5 - 1.0


def as_labels(labels: npt.NDArray[Any]) -> Any:
    """Return labels (N,) as a tensor: int32 classes, or float32 numbers."""
    return tf.constant(labels, tf.float32 if labels.dtype.kind == "f" else tf.int32)


def of_images(
    function: Callable[..., Any], network: Network, *others: Any, autograph: bool = True
) -> Callable[..., Any]:
    """Return a function of a network's images and other tensors as a graph, traced once a type.

    ``others`` are the specifications of the other tensors; None for labels (N,) of any type.
    """

    @lru_cache(maxsize=4)
    def graph(images: Any, labels: Any) -> Any:
        signature = [
            tf.TensorSpec([None, *network.image_shape], images),
            *(tf.TensorSpec([None], labels) if other is None else other for other in others),
        ]
        return tf.function(function, input_signature=signature, autograph=autograph)

    def call(images: Any, *arguments: Any) -> Any:
        pairs = zip(others, arguments, strict=True)
        labels = next((given.dtype for other, given in pairs if other is None), None)
        return graph(images.dtype, labels)(images, *arguments)

    return call


def divergence(mean: Any, deviation: Any, centre: Any, scale: Any) -> Any:
    """Return KL[N(μ, σ²) ‖ N(c, r²)] = Σ log(r/σ) + (σ² + (μ − c)²) / 2r² − 1/2, a tensor ().

    One expression over vectors (D,) of all parameters: a dozen operations, and not a dozen each.
    """
    ratio = deviation / scale
    terms = tf.square(ratio) + tf.square((mean - centre) / scale) - 1.0
    return tf.reduce_sum(0.5 * terms - tf.math.log(ratio))


class PriorVariables:
    """A prior of D parameters in variables, so that it may change without another trace."""

    def __init__(self, size: int) -> None:
        def vector(value: float) -> Any:
            return tf.Variable(tf.fill([size], value), trainable=False)

        self._centre, self._scale, self._sign, self._slope = map(vector, (0.0, 1.0, 1.0, 0.0))
        self._constant = tf.Variable(0.0, trainable=False)
        self._density = tf.Variable(True, trainable=False)

    def assign(self, prior: Standardized) -> None:
        """Set the prior."""
        density = bool(np.all(np.equal(prior.sign, 1.0)) and not np.any(prior.slope))
        self._density.assign(density)
        values = [(self._centre, prior.centre), (self._scale, prior.scale)]
        if not density:
            values += [(self._sign, prior.sign), (self._slope, prior.slope)]
        for variable, value in [*values, (self._constant, prior.constant)]:
            variable.assign(np.broadcast_to(np.asarray(value, np.float32), variable.shape))

    def divergence(self, mean: Any, deviation: Any) -> Any:
        """Return KL[q ‖ p], up to a constant where p is no density; (D,) each."""

        def beyond_a_density() -> Any:
            shift = mean - self._centre
            distance = tf.square(deviation / self._scale) + tf.square(shift / self._scale)
            return tf.reduce_sum(0.5 * (self._sign - 1.0) * distance - self._slope * shift)

        # As long as the divergence itself, and 0 for densities that are centred at their means.
        rest = tf.cond(self._density, lambda: tf.zeros([]), beyond_a_density)
        return divergence(mean, deviation, self._centre, self._scale) + rest + self._constant
