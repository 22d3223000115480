"""Query of the network's parameters, asked of the clients by a server that builds none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pydantic
from flwr.app import ConfigRecord, RecordDict

from bfl.federation.wire import CONFIG, VERSION, WIRE_FORMAT, WireFormatError, check_version
from bfl.posteriors import Manifest
from bfl.posteriors.manifest import LEAST_DIMENSIONS, Initialization, Parameter

MESSAGE_TYPE = "query.network"

MOST_PARAMETERS = 2**31
"""The most parameters that a network may have: 8 GiB for one float32 vector of them."""

MOST_DIMENSIONS = 32
"""The most dimensions that a tensor may have: NumPy has an end, and no network comes near it."""


@dataclass(frozen=True)
class NetworkQuery:
    """Query that the server sends.

    Attributes:
        configuration: The run's configuration, as JSON.
        image_shape: Height, width and channels of an image.
        num_classes: The number of classes.
    """

    configuration: str
    image_shape: tuple[int, int, int]
    num_classes: int

    def to_content(self) -> RecordDict:
        """Return the question as a message's content."""
        values: dict[str, Any] = {
            VERSION: WIRE_FORMAT,
            "configuration": self.configuration,
            "image-shape": list(self.image_shape),
            "num-classes": self.num_classes,
        }
        return RecordDict({CONFIG: ConfigRecord(values)})

    @classmethod
    def from_content(cls, content: RecordDict) -> NetworkQuery:
        """Return the question in a message's content.

        Raises:
            WireFormatError: The server speaks another version of the wire format.
        """
        record: Any = content[CONFIG]
        check_version(record, "the server")
        height, width, channels = record["image-shape"]
        return cls(
            str(record["configuration"]), (height, width, channels), int(record["num-classes"])
        )


def manifest_content(manifest: Manifest) -> RecordDict:
    """Return a client's answer as a message's content."""
    return RecordDict(
        {CONFIG: ConfigRecord({VERSION: WIRE_FORMAT, "manifest": manifest.to_json()})}
    )


def _known_initialization(word: Any) -> Any:
    """Raise ``ValueError`` for a word that is no initialization, naming those there are."""
    if word not in list(LEAST_DIMENSIONS):
        raise ValueError(f"allowed: {', '.join(LEAST_DIMENSIONS)}")
    return word


class _SaidParameter(pydantic.BaseModel):
    """A tensor as a client describes it: the fields and bounds of ``Parameter``."""

    model_config = pydantic.ConfigDict(strict=True, extra="forbid")

    name: str = pydantic.Field(min_length=1)
    shape: Annotated[tuple[pydantic.PositiveInt, ...], pydantic.Field(max_length=MOST_DIMENSIONS)]
    gaussian: bool
    initialization: Annotated[Initialization, pydantic.BeforeValidator(_known_initialization)]
    minimum: pydantic.FiniteFloat | None = None
    trainable: bool = True


_SAID = pydantic.TypeAdapter(
    Annotated[tuple[_SaidParameter, ...], pydantic.Field(min_length=1, fail_fast=True)]
)


def manifest_from_content(content: RecordDict) -> Manifest:
    """Return the manifest in a client's answer: that of a network which this machine could hold.

    Raises:
        WireFormatError: There is none in it; the message says what is wrong.
    """
    record: Any = content.get(CONFIG, {})
    check_version(record, "a node")
    text = record.get("manifest")
    if not isinstance(text, str):
        raise _no_parameters("the answer has no 'manifest'")
    try:
        # Unlike the JSON of the standard library, this one takes no stack for what is nested.
        said = _SAID.validate_json(text)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise _no_parameters(f"{where}: {first['msg']}" if where else first["msg"]) from error
    manifest = Manifest(tuple(Parameter(**dict(parameter)) for parameter in said))
    _check_network(manifest)
    return manifest


def _check_network(manifest: Manifest) -> None:
    """Refuse parameters that are each fine as values, and make no network.

    Raises:
        WireFormatError: The message names the first parameter that is wrong.
    """
    names: set[str] = set()
    size = 0
    for parameter in manifest:
        if parameter.name in names:
            raise _no_parameters(f"there are two parameters '{parameter.name}'")
        least = LEAST_DIMENSIONS[parameter.initialization]
        if len(parameter.shape) < least:
            raise _no_parameters(
                f"parameter '{parameter.name}' has {len(parameter.shape)} dimensions; "
                f"initialization '{parameter.initialization}' takes {least} or more"
            )
        names.add(parameter.name)
        size += parameter.size
        if size > MOST_PARAMETERS:
            raise _no_parameters(
                f"it has more than {MOST_PARAMETERS} of them by parameter '{parameter.name}'"
            )


def _no_parameters(problem: str) -> WireFormatError:
    return WireFormatError(f"a node says no parameters of its network: {problem}")
