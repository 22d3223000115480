"""CIFAR-10."""

from __future__ import annotations

from typing import ClassVar

from bfl.data.datasets.base import dataset_sources
from bfl.data.datasets.named import NamedSource


@dataset_sources.register("cifar10", aliases=("cifar-10",))
class Cifar10(NamedSource):
    """CIFAR-10: 50,000 and 10,000 photographs of 32 by 32 pixels, 10 classes (Krizhevsky 2009)."""

    repository: ClassVar[str] = "uoft-cs/cifar10"
    class_names: ClassVar[tuple[str, ...]] = (
        *("airplane", "automobile", "bird", "cat", "deer"),
        *("dog", "frog", "horse", "ship", "truck"),
    )
