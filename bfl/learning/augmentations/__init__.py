"""Augmentations of training images, one file each, inside the training graph."""

from bfl.learning.augmentations.base import Augmentation, augmentations

__all__ = ["Augmentation", "augmentations"]
