"""No augmentation."""

from __future__ import annotations

from typing import Any

from bfl.learning.augmentations.base import Augmentation, augmentations


@augmentations.register("none")
class NoAugmentation(Augmentation):
    """Images as they are."""

    def augment(self, images: Any, key: Any) -> Any:
        """Return the images."""
        return images
