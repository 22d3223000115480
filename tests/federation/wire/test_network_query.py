"""What a client may say of its network's parameters, and what is refused."""

import json
from typing import Any, get_args

import pytest
from flwr.app import ConfigRecord, RecordDict

from bfl.federation.node_description import manifest_content, manifest_from_content
from bfl.federation.wire import CONFIG, VERSION, WIRE_FORMAT, WireFormatError
from bfl.posteriors import Manifest
from bfl.posteriors.manifest import LEAST_DIMENSIONS, Initialization, Parameter

ROW: dict[str, Any] = {
    "name": "a/kernel",
    "shape": [2, 3],
    "gaussian": True,
    "initialization": "he-normal",
}


def read(text: Any) -> Manifest:
    record = ConfigRecord({VERSION: WIRE_FORMAT, "manifest": text})
    return manifest_from_content(RecordDict({CONFIG: record}))


def test_a_network_is_read_as_it_was_written() -> None:
    manifest = Manifest(
        (
            Parameter("dense/kernel", (2, 3), True, "xavier-uniform"),
            Parameter("dense/bias", (3,), True, "zeros"),
            Parameter("scale", (), False, "ones"),
            Parameter("norm/moving_variance", (3,), False, "ones", 0.0, False),
        )
    )
    assert manifest_from_content(manifest_content(manifest)) == manifest


def test_each_initialization_has_a_number_of_dimensions_that_it_can_be_drawn_in() -> None:
    assert set(LEAST_DIMENSIONS) == {n for kind in get_args(Initialization) for n in get_args(kind)}
    for word, least in LEAST_DIMENSIONS.items():
        manifest = Manifest((Parameter("a", (2,) * least, True, word),))
        assert manifest.initial_posterior(0, 0.1).size == 2**least


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"initialization": "foo"}, "0.initialization: "),
        ({"shape": [-1, 3]}, "0.shape.0: "),
        ({"shape": [0, 3]}, "0.shape.0: "),
        ({"shape": ["x"]}, "0.shape.0: "),
        ({"shape": [2.5]}, "0.shape.0: "),
        ({"shape": [True, 3]}, "0.shape.0: "),
        ({"shape": [1] * 100}, "0.shape: "),
        ({"shape": [10**13]}, "it has more than 2147483648 of them by parameter 'a/kernel'"),
        ({"shape": [10**5] * 30}, "it has more than 2147483648 of them"),
        ({"shape": [3], "initialization": "xavier-uniform"}, "parameter 'a/kernel' has 1 "),
        ({"shape": [], "initialization": "he-normal"}, "parameter 'a/kernel' has 0 "),
        ({"name": 5}, "0.name: "),
        ({"gaussian": "no"}, "0.gaussian: "),
        ({"trainable": 1}, "0.trainable: "),
        ({"gaussian": False, "minimum": "x"}, "0.minimum: "),
        ({"gaussian": False, "minimum": float("inf")}, "0.minimum: "),
        ({"more": 1}, "0.more: "),
    ],
)
def test_what_is_no_parameter_is_refused(changes: dict[str, Any], where: str) -> None:
    with pytest.raises(WireFormatError, match=f"no parameters of its network: {where}"):
        read(json.dumps([{**ROW, **changes}]))


TEXTS: list[Any] = ["[" * 100_000, '[{"name":' * 100_000, "[]", "{}", "7", "", "[7]"]
TEXTS += ['[{"name": "a"}]', json.dumps([ROW, ROW]), b"[]", 7, ["[]"]]
TEXTS += [json.dumps([ROW, {**ROW, "name": "b", "shape": [2**31]}])]


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_no_network_is_refused(text: Any) -> None:
    with pytest.raises(WireFormatError, match="a node says no parameters of its network: "):
        read(text)
