"""Which data a run is made with: those that the server can see, told apart bit for bit."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_federation import make_app, make_grid

from bfl.configuration import resolve
from bfl.data.datasets import Dataset
from bfl.data.datasets.base import digest_of
from bfl.data.datasets.server_data import ServerData
from bfl.errors import ConfigurationError
from strategies.application.division import data_digests
from strategies.application.run import run_federation


@dataclass
class Nodes:
    """A federation of which only the numbers of examples of their own matter."""

    own_examples: dict[int, int]


def dataset() -> Dataset:
    images = np.arange(96, dtype=np.uint8).reshape(6, 4, 4, 1)
    labels = np.array([0, 1, 0, 1, 0, 1])
    return Dataset("made", images, labels, images[:2].copy(), labels[:2].copy(), ("a", "b"))


def digests(data: Dataset, own: ServerData | None = None, examples: int = 0) -> dict[str, str]:
    nodes: Any = Nodes({0: 7, 1: examples})
    return data_digests(data, nodes, own)


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


@pytest.mark.slow
def test_a_run_is_not_resumed_on_changed_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is that of a run that was killed before its first round."""
    values = {"model": "mlp", "clients": 3, "output-dir": str(tmp_path), "name": "run"}
    configuration = resolve({**values, "rounds": 1, "test-examples": 20})

    def killed(*_: object, **__: object) -> None:
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr("strategies.application.run._run_rounds", killed)
        with pytest.raises(InterruptedError):
            run_federation(make_grid(make_app(), 3), configuration)
        patch.setattr(Dataset, "test_digest", property(lambda data: 64 * "0"))
        with pytest.raises(ConfigurationError, match="other data: the test images or labels of"):
            run_federation(make_grid(make_app(), 3), configuration.replace(resume=True))
