"""Natural partitions, by a column of the data, and what a partition of one's own sees."""

from typing import Any

import numpy as np
import pytest

from bfl.configuration import resolve
from bfl.data.partitions.base import partitions
from bfl.errors import ConfigurationError
from bfl.randomness import generator

LABELS = np.array([0, 1, 0, 1, 1, 0])
SITES = {"site": np.array(["south", "north", "south", "east", "north", "south"])}


def test_each_value_is_a_client_in_the_order_of_the_values() -> None:
    column = partitions.create("column:site")
    parts = column.split(LABELS, 3, generator(0), SITES)
    assert [sorted(part.tolist()) for part in parts] == [[3], [1, 4], [0, 2, 5]]
    assert column.names(SITES) == ("east", "north", "south")
    tests = {"site": np.array(["north", "west", "south", "north"])}
    found = column.assign_tests(SITES, tests)
    assert found is not None
    assert [part.tolist() for part in found] == [[], [0, 3], [2]]
    assert column.assign_tests(SITES, {}) is None


def test_the_word_with_a_colon_is_two_keys() -> None:
    short = resolve({"partition": "column:site"}, check_data=False)
    long = resolve({"partition": "column", "site-column": "site"}, check_data=False)
    assert short == long
    assert resolve(short.values, check_data=False) == short
    assert short.given == long.given


@pytest.mark.parametrize(
    ("clients", "columns", "said"),
    [
        (4, SITES, "3 values, east, north, south; allowed: clients=3"),
        (3, {"sites": SITES["site"]}, "did you mean 'sites'"),
        (3, {}, "not all training data have it"),
        (3, {"site": np.where(LABELS == 1, "", SITES["site"])}, "3 of 6"),
        (3, {"site": np.where(LABELS == 1, np.nan, LABELS)}, "3 of 6"),
    ],
)
def test_what_does_not_fit_is_refused(clients: int, columns: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as error:
        partitions.create("column:site").split(LABELS, clients, generator(0), columns)
    assert "\n" not in str(error.value)


def test_a_colon_behind_another_partition_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="unknown partition 'iid:site'"):
        partitions.create("iid:site")
