"""Variables that hand a task to a training step: no task traces the step anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.federation.parts import Arrays
from bfl.keras import tf
from bfl.learning.networks.network import Network
from bfl.learning.objectives import Step, Term, Value
from bfl.posteriors import Posterior


def vectors(network: Network, arrays: Sequence[npt.NDArray[Any]]) -> Arrays:
    """Return arrays, one for each trainable variable, as the vectors ``mean`` and ``point``.

    Args:
        network: The network.
        arrays: One array for each of its ``trainable_variables``; those of untransformed scales are
            passed over.

    Returns:
        ``mean`` (D,) and ``point`` (P,), float32; 0 where training moves nothing.
    """
    given = {id(v): array for v, array in zip(network.trainable_variables, arrays, strict=True)}
    manifest = network.manifest
    found = {
        "mean": np.zeros(manifest.gaussian_size, np.float32),
        "point": np.zeros(manifest.point_size, np.float32),
    }
    for variable, name, place in network.places():
        if id(variable) in given:
            found[name][place] = given[id(variable)].ravel()
    return found


class TermInputs:
    """A term of the objective with its inputs in variables."""

    def __init__(self, term: Term, network: Network) -> None:
        self._term = term
        self._manifest = network.manifest
        # Any posterior of the right sizes: tasks bring their own.
        arrays = term.inputs(network.manifest, network.initial_posterior(0))
        self._variables = {
            name: tf.Variable(array, trainable=False, dtype=tf.float32)
            for name, array in arrays.items()
        }

    def assign(self, received: Posterior) -> None:
        """Set the inputs to those of a task."""
        for name, array in self._term.inputs(self._manifest, received).items():
            self._variables[name].assign(np.asarray(array, np.float32))

    def value(self, step: Step, examples: Any) -> Value:
        """Return the term's value in a step."""
        return self._term.value(step, self._variables, examples)


class Offsets:
    """Offsets that a correction adds to the gradients of means and point values, in variables."""

    def __init__(self, network: Network) -> None:
        trained = {id(variable) for variable in network.trainable_variables}
        self._places = [place for place in network.places() if id(place[0]) in trained]
        self._variables: Mapping[int, Any] = {
            id(variable): tf.Variable(tf.zeros_like(variable), trainable=False)
            for variable, _, _ in self._places
        }

    def assign(self, offsets: Arrays) -> None:
        """Set the offsets to those of a task: ``mean`` (D,) and ``point`` (P,)."""
        for variable, name, place in self._places:
            part = offsets[name][place].reshape(variable.shape)
            self._variables[id(variable)].assign(part)

    def added(self, variables: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
        """Return gradients with the offsets added; untransformed scales have none."""
        return [
            gradient + self._variables[id(variable)]
            if id(variable) in self._variables
            else gradient
            for variable, gradient in zip(variables, gradients, strict=True)
        ]
