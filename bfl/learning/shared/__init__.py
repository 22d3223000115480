"""Divisions of a network's parameters into those that travel and a client's own.

What stays is the client's *head*: it is never sent, and is state like any other. So clients may
have different classes, and the server, which has no head, evaluates nothing.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from bfl.errors import ConfigurationError
from bfl.federation.parts import Arrays, Trained, TwoSidedPart
from bfl.posteriors import Manifest, Parameter, Posterior
from bfl.posteriors.posterior import VECTORS
from bfl.registry import Registry

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Division:
    """Division of a manifest's parameters into those that travel and those that stay."""

    manifest: Manifest
    travels: tuple[bool, ...]

    @cached_property
    def shared(self) -> Manifest:
        """The parameters that travel."""
        pairs = zip(self.manifest, self.travels, strict=True)
        return Manifest(tuple(parameter for parameter, travels in pairs if travels))

    @cached_property
    def _masks(self) -> dict[str, Mask]:
        def mask(*, gaussian: bool) -> Mask:
            pairs = zip(self.manifest, self.travels, strict=True)
            parts = [np.full(p.size, travels) for p, travels in pairs if p.gaussian == gaussian]
            return np.concatenate([np.zeros(0, bool), *parts])

        gaussian = mask(gaussian=True)
        return {"mean": gaussian, "variance": gaussian, "point": mask(gaussian=False)}

    def shared_of(self, posterior: Posterior) -> Posterior:
        """Return what travels of a network's posterior."""
        return Posterior(**{name: getattr(posterior, name)[self._masks[name]] for name in VECTORS})

    def head_of(self, posterior: Posterior) -> Posterior:
        """Return what stays of it."""
        return Posterior(**{name: getattr(posterior, name)[~self._masks[name]] for name in VECTORS})

    def join(self, shared: Posterior, head: Posterior) -> Posterior:
        """Return the network's posterior, of what has travelled and what has stayed."""
        self.shared.check(shared)

        def vector(name: str) -> npt.NDArray[np.floating]:
            mask = self._masks[name]
            joined = np.empty(mask.size, getattr(shared, name).dtype)
            joined[mask], joined[~mask] = getattr(shared, name), getattr(head, name)
            return joined

        return Posterior(**{name: vector(name) for name in VECTORS})


class SharedParameters(TwoSidedPart):
    """Says which parameters of a network travel between its client and the server."""

    partial: ClassVar[bool] = False

    @abstractmethod
    def travels(self, parameters: Sequence[Parameter]) -> tuple[bool, ...]:
        """Return whether each of a network's parameters travels, given in the order of the layers.

        They are named LAYER/PARAMETER; those of the layer that gives the logits come last.
        """

    def division(self, manifest: Manifest) -> Division:
        """Return the division of a network's parameters; none to travel is a ConfigurationError."""
        travels = self.travels(manifest.parameters)
        if not any(travels):
            layers = dict.fromkeys(layer_of(parameter) for parameter in manifest)
            raise ConfigurationError(
                f"shared is '{self.name}', and the model has no layer that would be: its layers "
                f"are {', '.join(layers)}; allowed: another model, or another choice of shared"
            )
        return Division(manifest, travels)


class PartlyShared(SharedParameters):
    """A choice that leaves clients a head of their own."""

    state_name: ClassVar[str] = "head"
    partial: ClassVar[bool] = True
    always_requires: ClassVar[frozenset[str]] = frozenset({"evaluated-heads"})

    def excludes(self) -> frozenset[str]:
        """Return what would need a whole network on the server, or leave nobody who evaluates."""
        server = {"pre-training", "refined-pool", "evaluated-ensemble", "evaluated-clients"}
        return frozenset({"secret-measurements", *server})

    def conclude(self, state: Arrays, trained: Trained) -> tuple[Arrays, Arrays]:
        """Return nothing to send, and the head, with the word that it has begun."""
        return {}, {"begun": np.array(True), **trained.head}


def layer_of(parameter: Parameter) -> str:
    """Return the name of the layer that a parameter belongs to."""
    return parameter.name.rpartition("/")[0]


shared_parameters: Registry[SharedParameters] = Registry("shared", "bfl.learning.shared")


@shared_parameters.register("all")
class AllShared(SharedParameters):
    """All parameters of the network travel, and its clients have the same classes.

    Source: McMahan et al. (2017), "Communication-efficient learning of deep networks from
    decentralized data", Algorithm 1.
    """

    def travels(self, parameters: Sequence[Parameter]) -> tuple[bool, ...]:
        """Return that all do."""
        return (True,) * len(parameters)


@shared_parameters.register("body", aliases=("all-but-the-head",))
class Body(PartlyShared):
    """All layers but the last travel; that one, which gives the logits, is the client's own.

    Source: Arivazhagan et al. (2019), "Federated learning with personalization layers" (FedPer),
    Algorithm 1, with one personalization layer.
    """

    def travels(self, parameters: Sequence[Parameter]) -> tuple[bool, ...]:
        """Return which of them are not the last layer's."""
        return tuple(layer_of(p) != layer_of(parameters[-1]) for p in parameters)


@shared_parameters.register("convolutions")
class Convolutions(PartlyShared):
    """The layers before the first dense one travel; the dense ones are the client's own.

    Of a model without convolutions that is nothing, which is refused.

    Source: Yang et al. (2023), HBFL, section 5, on Fig. 7: "we use the joint convolution layers as
    global model. When clients receive the global model, the FC layers are spliced on it"; after
    Shen et al. (2020), "Federated mutual learning".
    """

    def requires(self) -> frozenset[str]:
        """Return that there is something to share, as well."""
        return super().requires() | {"convolutions"}

    def travels(self, parameters: Sequence[Parameter]) -> tuple[bool, ...]:
        """Return which of them come before the first dense layer."""
        kernels = (p for p in parameters if p.name.endswith("/kernel"))
        dense = [layer_of(kernel) for kernel in kernels if len(kernel.shape) == 2]
        layers = list(dict.fromkeys(layer_of(parameter) for parameter in parameters))
        before = set(layers[: layers.index(dense[0])] if dense else layers)
        return tuple(layer_of(parameter) in before for parameter in parameters)
