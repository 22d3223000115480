"""Tables of survival times, as the package ``SurvSet`` ships them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bfl.data.datasets.base import dataset_sources
from bfl.data.datasets.packaged import PackagedTable

if TYPE_CHECKING:
    from pandas import DataFrame


@dataset_sources.register("survset")
class SurvSet(PackagedTable):
    """A table of the package SurvSet: ``survset:TABLE``, such as Dialysis.

    That one has 6,805 patients of 67 centres: ``target="event" columns-left-out="pid,time"
    partition="column:fac_center"`` predicts whether a death was observed. Install the package with
    ``pip install 'bfl[federations]'``; its licence is the GPL. It takes the keys of a table.
    """

    package: ClassVar[str] = "SurvSet"
    location_form: ClassVar[str] = "TABLE"

    def tables(self) -> tuple[str, ...]:
        """Return the names of all tables."""
        from SurvSet.data import SurvLoader

        return tuple(map(str, SurvLoader().df_ds["ds"]))

    def rows(self, name: str) -> DataFrame:
        """Return a table."""
        from SurvSet.data import SurvLoader

        return SurvLoader().load_dataset(name)["df"]
