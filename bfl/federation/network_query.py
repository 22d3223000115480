"""Which parameters the run's network has: asked of the clients by a server that builds none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flwr.app import ConfigRecord, RecordDict

from bfl.federation.wire import CONFIG, VERSION, WIRE_FORMAT, WireFormatError, check_version
from bfl.posteriors import Manifest

MESSAGE_TYPE = "query.network"


@dataclass(frozen=True)
class NetworkQuery:
    """What the server asks.

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


def manifest_from_content(content: RecordDict) -> Manifest:
    """Return the manifest in a client's answer.

    Raises:
        WireFormatError: There is none in it.
    """
    record: Any = content.get(CONFIG, {})
    check_version(record, "a node")
    try:
        return Manifest.from_json(record["manifest"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WireFormatError("a node says no parameters of its network") from error
