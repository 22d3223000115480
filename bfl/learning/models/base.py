"""Base of model architectures, and their names in a configuration."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from bfl.errors import ConfigurationError, unknown_name
from bfl.learning.inferences import Inference
from bfl.registry import Component, Registry


class Architecture(Component):
    """A family of networks: how layers are put together, whatever their weights are."""

    minimum_side: ClassVar[int] = 1
    """The smallest height and width of an image that it takes."""

    compilable: ClassVar[bool] = True
    """True if XLA can compile a training step of it, deterministically."""

    @property
    def convolutional(self) -> bool:
        """True if layers come before its first dense one; a test compares with what is built."""
        return True

    def has(self) -> frozenset[str]:
        """Return whether XLA can compile it, and whether clients can share its convolutions."""
        found = {"compilable": self.compilable, "convolutions": self.convolutional}
        return frozenset(name for name, there in found.items() if there)

    @abstractmethod
    def build(self, inference: Inference, image_shape: tuple[int, int, int], classes: int) -> Any:
        """Return a Keras model from images (N, H, W, C) in [−1, 1] to logits (N, classes).

        Its layers are called without AutoGraph: where one decides by the value of a tensor, it says
        so with ``tf.where`` or ``tf.cond``.
        """


architectures: Registry[Architecture] = Registry("model", "bfl.learning.models")


def create_architecture(word: str, settings: Mapping[str, Any] | None = None) -> Architecture:
    """Return the architecture that a word names.

    Digits at its end are the family's ``depth``, unless they are a part of its name, as in "cnn1".

    Example:
        >>> create_architecture("resnet20").depth
        20

    Raises:
        ConfigurationError: The family is unknown.
        pydantic.ValidationError: The depth or a setting is not one the family has.
    """
    match = re.fullmatch(r"(.*?[a-z])-?(\d+)", word.strip().lower())
    if match and word not in architectures:
        if match.group(1) not in architectures:
            spellings = [
                f"{spelling}{match.group(2)}"
                if "depth" in architectures.get(spelling).model_fields
                else spelling
                for spelling in architectures.spellings()
            ]
            raise ConfigurationError(unknown_name("model", word, spellings))
        family = architectures.get(match.group(1))
        if "depth" not in family.model_fields:
            raise ConfigurationError(f"model '{word}': '{match.group(1)}' comes in one depth only")
        return architectures.create(
            match.group(1), {**(settings or {}), "depth": int(match.group(2))}
        )
    return architectures.create(word, settings)
