"""Fashion-MNIST."""

from __future__ import annotations

from typing import ClassVar

from bfl.data.datasets.base import dataset_sources
from bfl.data.datasets.named import NamedSource


@dataset_sources.register("fashion-mnist")
class FashionMnist(NamedSource):
    """Fashion-MNIST: 60,000 and 10,000 garments of 28 by 28 grey pixels (Xiao et al. 2017)."""

    repository: ClassVar[str] = "zalando-datasets/fashion_mnist"
    class_names: ClassVar[tuple[str, ...]] = (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    )
