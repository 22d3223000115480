"""SVHN."""

from __future__ import annotations

from typing import ClassVar

from bfl.data.datasets.base import dataset_sources
from bfl.data.datasets.named import NamedSource


@dataset_sources.register("svhn")
class Svhn(NamedSource):
    """SVHN: 73,257 and 26,032 digits cut out of house numbers, 32 by 32 pixels (Netzer 2011).

    The hub's labels are the digits themselves: 0 is the class 0, not 10 as in the original files.
    """

    repository: ClassVar[str] = "ufldl-stanford/svhn"
    subset: ClassVar[str | None] = "cropped_digits"
    class_names: ClassVar[tuple[str, ...]] = tuple(map(str, range(10)))
