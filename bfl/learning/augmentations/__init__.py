"""Augmentations of training images, inside the training graph."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal

from pydantic import Field

from bfl.registry import Component, Registry


class Augmentation(Component):
    """A random change of training images that keeps their labels."""

    @abstractmethod
    def augment(self, images: Any, key: Any) -> Any:
        """Return images (N, H, W, C) changed by random numbers keyed by an int32 tensor (2,)."""


augmentations: Registry[Augmentation] = Registry("augmentation", "bfl.learning.augmentations")


@augmentations.register("none")
class NoAugmentation(Augmentation):
    """Images as they are."""

    def augment(self, images: Any, key: Any) -> Any:
        """Return the images."""
        return images


@augmentations.register("crop-flip")
class CropFlip(Augmentation):
    """Each image padded, cropped back at a random place, and flipped half of the time.

    Source: He et al. (2016), section 4.2: 4 pixels on each side, of zeros. Fischer et al. (2024) do
    not say whether they augment; a ResNet-20 does not reach their 90 % on CIFAR-10 without. The
    code of Ozer et al. (2022) pads CIFAR-10 with 4 reflected pixels when it stores the images.
    """

    crop_padding: int = Field(4, ge=0)
    """pixels added on each side before cropping"""

    crop_padding_with: Literal["zeros", "reflection", "black"] = "zeros"
    """what the pixels added before cropping are"""

    def augment(self, images: Any, key: Any) -> Any:
        """Return crops of the padded images, some of them flipped."""
        from bfl.keras import tf
        from bfl.learning.networks.layers import split

        places_key, flips_key = tf.unstack(split(key, 2))
        count, (height, width) = tf.shape(images)[0], images.shape[1:3]
        pad = self.crop_padding
        mode = "REFLECT" if self.crop_padding_with == "reflection" else "CONSTANT"
        value = -1.0 if self.crop_padding_with == "black" else 0
        sides = [[0, 0], [pad, pad], [pad, pad], [0, 0]]
        padded = tf.pad(images, sides, mode, constant_values=value)
        tops, lefts = tf.unstack(
            tf.random.stateless_uniform([2, count], places_key, maxval=2 * pad + 1, dtype=tf.int32)
        )
        flips = tf.random.stateless_uniform([count], flips_key, maxval=2, dtype=tf.int32)
        columns = tf.where(flips[:, None] == 1, tf.range(width)[::-1][None], tf.range(width)[None])
        rows = tops[:, None] + tf.range(height)[None]
        padded = tf.gather(padded, rows, axis=1, batch_dims=1)
        return tf.gather(padded, lefts[:, None] + columns, axis=2, batch_dims=1)
