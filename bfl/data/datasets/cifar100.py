"""CIFAR-100."""

from __future__ import annotations

from typing import ClassVar

from bfl.data.datasets.base import dataset_sources
from bfl.data.datasets.named import NamedSource


@dataset_sources.register("cifar100", aliases=("cifar-100",))
class Cifar100(NamedSource):
    """CIFAR-100: 50,000 and 10,000 photographs of 32 by 32 pixels, 100 fine classes.

    The hub names the classes; in an archive they are numbers. Source: Krizhevsky (2009).
    """

    repository: ClassVar[str] = "uoft-cs/cifar100"
    class_names: ClassVar[tuple[str, ...]] = tuple(map(str, range(100)))
