"""MNIST."""

from __future__ import annotations

from typing import ClassVar

from bfl.data.datasets.base import dataset_sources
from bfl.data.datasets.named import NamedSource


@dataset_sources.register("mnist")
class Mnist(NamedSource):
    """MNIST: 60,000 and 10,000 handwritten digits of 28 by 28 grey pixels (LeCun et al. 1998)."""

    repository: ClassVar[str] = "ylecun/mnist"
    class_names: ClassVar[tuple[str, ...]] = tuple(map(str, range(10)))
