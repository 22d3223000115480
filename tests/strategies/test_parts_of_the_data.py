"""The data of a run: who gets which examples, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bfl.configuration import resolve
from bfl.data.datasets import Dataset, cached_dataset, load_dataset
from bfl.data.datasets.base import digest_of
from bfl.data.datasets.server_data import ServerData
from bfl.data.datasets.subset import train_positions
from bfl.errors import BflError, ConfigurationError
from strategies.application.data import RunData, divide
from strategies.application.preflight import check_before_start
from strategies.federation import Federation

FEDERATION = Federation(nodes={0: 10, 1: 11, 2: 12}, own_examples={0: 0, 1: 0, 2: 0})


@pytest.mark.parametrize("partition", ["iid", "shards", "dirichlet"])
def test_clients_share_the_part_and_nothing_else(partition: str) -> None:
    dataset = load_dataset("digits")
    configuration = resolve({"train-examples": 0.2, "partition": partition, "shards-per-client": 4})
    parts = divide(configuration, dataset, FEDERATION).train
    held = np.concatenate([part for part in parts if part is not None])
    np.testing.assert_array_equal(np.sort(held), train_positions(dataset, 0.2))
    # Another seed shares out the same images otherwise.
    others = divide(configuration.replace(seed=1), dataset, FEDERATION).train
    assert not np.array_equal(parts[0], others[0])  # type: ignore[arg-type]
    np.testing.assert_array_equal(
        np.sort(held), np.sort(np.concatenate([part for part in others if part is not None]))
    )


def test_nodes_with_data_of_their_own_keep_all_of_it() -> None:
    federation = Federation(
        nodes={0: 10, 1: 11, 2: 12, 3: 13}, own_examples={0: 50, 1: 0, 2: 0, 3: 1}
    )
    configuration = resolve({"train-examples": 100.0})
    divided = divide(configuration, load_dataset("digits"), federation)
    assert divided.train[0] is None
    described = divided.describe(configuration)
    # A size of 1 is one that a node does not say.
    assert described["num_examples"] == [50, 25, 25, None]
    assert [n and sum(n) for n in described["class_counts"]] == [None, 25, 25, None]


def test_too_many_and_too_few_are_refused_before_the_start() -> None:
    for key, number in (("train-examples", 2000), ("test-examples", 400)):
        with pytest.raises(ConfigurationError, match=f"{key} is {number}"):
            check_before_start(resolve({key: float(number)}), 10)
    with pytest.raises(ConfigurationError, match="only 5 training examples"):
        check_before_start(resolve({"train-examples": 5.0}), 10)


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
    divided = divide(configuration, dataset, federation)
    tests = divided.test
    assert tests
    for name, part, own in zip(("north", "south", "west"), divided.train, tests, strict=True):
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


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"model": "convnet"}, "convnet"),
        (
            {"model": "mlp", "personalization": "distillation", "personal-models": "cnn2:1,mlp:1"},
            "cnn2",
        ),
    ],
    ids=["of the federation", "of a client"],
)
def test_the_refusal_names_the_model_the_data_set_and_both_sizes(
    values: dict[str, str], word: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"'{word}' .* 18 .* 8 x 8, .*'digits'"):
        check_before_start(resolve({"dataset": "digits", **values}), 2)


def dataset() -> Dataset:
    images = np.arange(96, dtype=np.uint8).reshape(6, 4, 4, 1)
    labels = np.array([0, 1, 0, 1, 0, 1])
    return Dataset("made", images, labels, images[:2].copy(), labels[:2].copy(), ("a", "b"))


def digests(data: Dataset, own: ServerData | None = None, examples: int = 0) -> dict[str, str]:
    first = None if examples else np.arange(2)
    none = np.zeros(0, np.int64)
    return RunData(data, data, own, none, [first, None], None, [7, 7]).digests()


def changed(array: Any) -> Any:
    other = array.copy()
    other.flat[-1] ^= 1
    return other


@pytest.mark.parametrize("name", ["train_images", "train_labels", "test_images", "test_labels"])
def test_one_bit_is_another_data_set(name: str) -> None:
    begun = dataset()
    other = replace(begun, **{name: changed(getattr(begun, name))})
    differing = {k for k, v in digests(begun).items() if digests(other)[k] != v}
    assert differing == {name.partition("_")[0]}
    assert digests(begun) == digests(dataset())


def test_shapes_and_types_count_as_well() -> None:
    values = np.arange(6, dtype=np.uint8)
    found = {digest_of(values), digest_of(values.reshape(2, 3)), digest_of(values.view(np.int8))}
    assert len(found) == 3
    assert digest_of(values[::2]) == digest_of(values[::2].copy())


def test_only_what_is_used_where_the_server_is() -> None:
    data = dataset()
    assert set(digests(data)) == {"train", "test"}
    assert set(digests(data, examples=3)) == {"test"}  # all nodes have data of their own
    held_back = ServerData(data.train_images[:2], data.train_labels[:2], np.arange(2))
    assert digests(data, held_back) == digests(data)
    other = ServerData(data.test_images, None, np.zeros(0, np.int64))
    assert digests(data, other)["server"] == digest_of(data.test_images)
    beside_unused = ServerData(data.test_images, None, np.zeros(0, np.int64), np.arange(2))
    assert digests(data, beside_unused) == digests(data, other)
    # Held back beside unused ones, they are a part of what the partition tells that clients lack.
    parts = [
        ServerData(data.train_images[[k]], None, np.array([k]), np.array([1 - k])) for k in (0, 1)
    ]
    of_each = [digests(data, part)["server"] for part in parts]
    assert of_each == [digest_of(part.images) for part in parts]
    assert of_each[0] != of_each[1]
