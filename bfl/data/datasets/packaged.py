"""Base of the sources whose tables come with a package that is installed."""

from __future__ import annotations

from abc import abstractmethod
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from bfl.data.datasets.reading import Reading
from bfl.data.datasets.table import Opened, TableSource, checked_table
from bfl.errors import ConfigurationError, nearest

if TYPE_CHECKING:
    from pandas import DataFrame


class PackagedTable(TableSource):
    """Base of a package's tables; a new one overrides ``tables`` and ``rows``.

    Attributes:
        package: The package, as it is imported.
    """

    package: ClassVar[str]

    @abstractmethod
    def tables(self) -> tuple[str, ...]:
        """Return the names of all tables that the package has."""

    @abstractmethod
    def rows(self, name: str) -> DataFrame:
        """Return one of the tables."""

    def check_location(self, location: str, data_dir: Path | None) -> None:
        """Check that the package is installed and has the table."""
        super().check_location(location, data_dir)
        if not find_spec(self.package):
            raise ConfigurationError(
                f"dataset '{self.name}:{location}' needs the package {self.package}, which is not "
                "installed: pip install 'bfl[federations]'"
            )
        names = _names(type(self))
        if location not in names:
            like = f"; did you mean '{guess}'?" if (guess := nearest(location, names)) else ""
            raise ConfigurationError(
                f"dataset '{self.name}:{location}': the package {self.package} has {len(names)} "
                f"tables, and none of this name{like}"
            )

    def reads_path(self, location: str) -> bool:
        """Return False: it is a name of the package's."""
        return False

    def opened(self, reading: Reading, location: str, data_dir: Path | None) -> Opened:
        """Return the package's table."""
        self.check_location(location, data_dir)
        where = f"{self.name}:{location}"
        return Opened(checked_table(self.rows(location), where), where)


@lru_cache
def _names(source: type[PackagedTable]) -> tuple[str, ...]:
    return source().tables()
