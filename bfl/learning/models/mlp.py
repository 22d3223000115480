"""The multilayer perceptron."""

from __future__ import annotations

from typing import ClassVar

from bfl.learning.models.base import architectures
from bfl.learning.models.plain import PlainNetwork


@architectures.register("mlp", aliases=("multilayer-perceptron",))
class MultilayerPerceptron(PlainNetwork):
    """Dense layers of 200, 200 and the classes' units, with ReLU between them.

    Source: HBFL (2023), section 5, with the widths of the code of federated mutual learning (Shen
    et al. 2020); McMahan et al. (2017), section 3, "2NN".
    """

    dense_units: ClassVar[tuple[int, ...]] = (200, 200)
