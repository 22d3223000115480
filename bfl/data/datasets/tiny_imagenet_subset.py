"""A part of Tiny-ImageNet."""

from __future__ import annotations

from typing import ClassVar

from bfl.data.datasets.base import dataset_sources
from bfl.data.datasets.named import NamedSource


@dataset_sources.register("tiny-imagenet200-subset", aliases=("tiny-imagenet-subset",))
class TinyImagenetSubset(NamedSource):
    """A part of Tiny-ImageNet in an archive: 64 by 64 pixels, 200 classes; not on the hub.

    Made with 100 training and 20 test images a class, so that a many-class or out-of-domain data
    set fits where the whole does not. Source: Le and Yang (2015).
    """

    repository: ClassVar[str] = ""
    class_names: ClassVar[tuple[str, ...]] = tuple(map(str, range(200)))
