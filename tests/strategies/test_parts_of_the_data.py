"""Runs on a part of the data: the server gives out positions within it, of the whole data set."""

import numpy as np
import pytest

from bfl.configuration import resolve
from bfl.data.datasets import load_dataset
from bfl.data.datasets.subset import train_positions
from bfl.errors import ConfigurationError
from strategies.application.division import split
from strategies.application.preflight import check_before_start
from strategies.federation import Federation

FEDERATION = Federation(nodes={0: 10, 1: 11, 2: 12}, own_examples={0: 0, 1: 0, 2: 0})


@pytest.mark.parametrize("partition", ["iid", "shards", "dirichlet"])
def test_clients_share_the_part_and_nothing_else(partition: str) -> None:
    dataset = load_dataset("digits")
    configuration = resolve({"train-examples": 0.2, "partition": partition, "shards-per-client": 4})
    parts = split(configuration, dataset, FEDERATION)
    held = np.concatenate([part for part in parts if part is not None])
    np.testing.assert_array_equal(np.sort(held), train_positions(dataset, 0.2))
    # Another seed shares out the same images otherwise.
    others = split(configuration.replace(seed=1), dataset, FEDERATION)
    assert not np.array_equal(parts[0], others[0])  # type: ignore[arg-type]
    np.testing.assert_array_equal(
        np.sort(held), np.sort(np.concatenate([part for part in others if part is not None]))
    )


def test_nodes_with_data_of_their_own_keep_all_of_it() -> None:
    federation = Federation(nodes={0: 10, 1: 11}, own_examples={0: 0, 1: 50})
    parts = split(resolve({"train-examples": 100.0}), load_dataset("digits"), federation)
    assert parts[1] is None


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"train-examples": 2000.0}, "train-examples is 2000"),
        ({"test-examples": 400.0}, "test-examples is 400"),
        ({"train-examples": 5.0}, "only 5 training examples"),
    ],
)
def test_too_many_and_too_few_are_refused_before_the_start(
    values: dict[str, float], word: str
) -> None:
    with pytest.raises(ConfigurationError, match=word):
        check_before_start(resolve(values), 10)
