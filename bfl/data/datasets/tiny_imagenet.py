"""Tiny-ImageNet."""

from __future__ import annotations

from typing import ClassVar

from bfl.data.datasets.base import dataset_sources
from bfl.data.datasets.named import NamedSource


@dataset_sources.register("tiny-imagenet", aliases=("tiny-imagenet200",))
class TinyImagenet(NamedSource):
    """Tiny-ImageNet: 100,000 and 10,000 photographs of 64 by 64 pixels, 200 classes.

    Its validation images are those to test on. The hub names the classes; in an archive they are
    numbers. Source: Le and Yang (2015).
    """

    repository: ClassVar[str] = "zh-plus/tiny-imagenet"
    class_names: ClassVar[tuple[str, ...]] = tuple(map(str, range(200)))
