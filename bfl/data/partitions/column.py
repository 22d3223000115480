"""Every client has the examples of one site, or of another value of a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from bfl.data.partitions.base import Columns, Indices, Partition, partitions
from bfl.errors import ConfigurationError, unknown_name
from bfl.texts import few


@partitions.register("column")
class Column(Partition):
    """A natural partition: each value of a column is a client, ``partition="column:site"``.

    Columns are those of a table, the folders above the classes (``site``), or arrays NAME_train and
    NAME_test of an archive. Clients are numbered in the order of the values. A client's own test
    examples are those of its value, where the test data have the column.
    """

    behind_colon: ClassVar[str] = "site-column"

    site_column: str = ""
    """the column whose values are the clients"""

    def assign(
        self, labels: Indices, clients: int, generator: np.random.Generator
    ) -> Sequence[Indices]:
        """Refuse data without columns."""
        return self.assign_by(labels, {}, clients, generator)

    def assign_by(
        self, labels: Indices, columns: Columns, clients: int, generator: np.random.Generator
    ) -> Sequence[Indices]:
        """Return the positions of each value, in the order of the values."""
        values = self._values(columns)
        names = np.unique(values)
        if len(names) != clients:
            raise ConfigurationError(
                f"partition 'column:{self.site_column}' with clients = {clients}: the column has "
                f"{len(names)} values, {few(list(map(str, names)))}; allowed: clients={len(names)}"
            )
        return [np.flatnonzero(values == name) for name in names]

    def names(self, columns: Columns) -> tuple[str, ...]:
        """Return the values in the order of the clients."""
        return tuple(map(str, np.unique(self._values(columns))))

    def assign_tests(self, columns: Columns, tests: Columns) -> list[Indices] | None:
        """Return the test examples of each value; some may be empty."""
        if self.site_column not in tests:
            return None
        names, values = np.unique(self._values(columns)), self._values(tests)
        return [np.flatnonzero(values == name) for name in names]

    def said(self, columns: Columns, tests: Columns) -> list[str]:
        """Return which values stand in test examples alone, so that no client has them."""
        if self.site_column not in columns or self.site_column not in tests:
            return []
        values = np.asarray(tests[self.site_column])
        alone = values[~np.isin(values, columns[self.site_column])]
        names = [str(name) for name in np.unique(alone)]
        return [
            f"partition 'column:{self.site_column}': {few(names)} stand in "
            f"{alone.size} test examples and in no training example: they are no clients, and "
            "their examples count in the server's evaluation alone"
        ][: len(names)]

    def _values(self, columns: Columns) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
        if self.site_column in columns:
            values = np.asarray(columns[self.site_column])
            missing = np.isnan(values) if values.dtype.kind == "f" else values == ""
            if missing.any():
                raise ConfigurationError(
                    f"partition 'column:{self.site_column}': {missing.sum()} of {values.size} "
                    "examples have no value there; allowed: one for each example"
                )
            return values
        problem = (
            unknown_name("column", self.site_column, columns)
            if columns
            else "the data set has no columns; allowed: a table, a folder with sites above its "
            "classes, or an archive with arrays NAME_train and NAME_test"
        )
        raise ConfigurationError(f"partition 'column:{self.site_column}': {problem}")
