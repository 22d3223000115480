"""Tables and their sites in a run: who has which rows, and what is refused before round 1."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bfl.configuration import resolve
from bfl.data.datasets import cached_dataset
from bfl.errors import BflError
from strategies.application.division import own_test_positions, split
from strategies.application.preflight import check_before_start
from strategies.federation import Federation


@pytest.fixture
def values(tmp_path: Path) -> dict[str, Any]:
    """Keys of a run on a table of three sites of 30, 20 and 10 rows."""
    site = np.repeat(["north", "south", "west"], [30, 20, 10])
    frame = pd.DataFrame({"site": site, "age": np.arange(60.0), "label": np.tile([0, 1], 30)})
    frame.to_csv(tmp_path / "some.csv", index=False)
    return {
        "dataset": f"table:{tmp_path / 'some.csv'}",
        "columns-left-out": "site",
        "partition": "column:site",
        "model": "mlp",
        "evaluated-by": "clients",
        "output-dir": str(tmp_path),
    }


def test_clients_have_their_sites_rows_to_train_and_to_test(values: dict[str, Any]) -> None:
    configuration = resolve(values)
    check_before_start(configuration, 3)
    dataset = cached_dataset(values["dataset"], "", configuration.keys.reading)
    federation = Federation(nodes={0: 1, 1: 2, 2: 3}, own_examples={0: 0, 1: 0, 2: 0})
    parts = split(configuration, dataset, federation)
    tests = own_test_positions(configuration, dataset, parts)
    assert tests
    for name, part, own in zip(("north", "south", "west"), parts, tests, strict=True):
        assert set(dataset.train_columns["site"][part]) == {name}
        assert set(dataset.test_columns["site"][own]) == {name}
    assert sum(len(own) for own in tests if own is not None) == len(dataset.test_labels)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"partition": "column:sites"}, "did you mean 'site'"),
        ({"clients": 4}, "clients=3"),
        ({"augmentation": "crop-flip"}, "augmentation is 'crop-flip'"),
        ({"corruptions": "noise"}, "corruptions is 'noise'"),
        ({"ood-dataset": "noised"}, "ood-dataset is 'noised'"),
        ({"server-data": "digits"}, "held-back"),
        ({"image-size": 8}, "image-size is 8"),
        ({"model": "resnet8"}, "'mlp'"),
        ({"target": "lable"}, "did you mean 'label'"),
    ],
)
def test_what_does_not_go_with_a_table_is_refused(
    values: dict[str, Any], changes: dict[str, Any], said: str
) -> None:
    keys = {**values, **changes}
    with pytest.raises(BflError, match=said) as error:
        check_before_start(resolve(keys), keys.get("clients", 3))
    assert "\n" not in str(error.value)


def test_rows_without_a_site_are_refused(values: dict[str, Any]) -> None:
    path = values["dataset"].removeprefix("table:")
    frame = pd.read_csv(path)
    frame.loc[[6, 20, 21], "site"] = None
    frame.to_csv(path, index=False)
    with pytest.raises(BflError, match=r"column:site.* examples have no value there"):
        check_before_start(resolve(values), 3)
