"""What an augmentation is."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from bfl.registry import Component, Registry


class Augmentation(Component):
    """A random change of training images that keeps their labels."""

    @abstractmethod
    def augment(self, images: Any, key: Any) -> Any:
        """Return images (N, H, W, C) changed by random numbers keyed by an int32 tensor (2,)."""


augmentations: Registry[Augmentation] = Registry("augmentation", "bfl.learning.augmentations")
