"""Messages of secure aggregation: plain fields, and Flower's records in which they travel.

| stage | from the server | from a client |
| --- | --- | --- |
| advertise keys | ``Invitation`` | ``PublicKeys`` |
| share keys | ``Roster`` | ``Shares`` |
| masked input | ``MaskedTask`` | its masked vector |
| consistency | ``Survivors`` | ``Confirmations`` |
| unmask | ``Confirmations`` | ``Unmasking`` |

A ``label`` names a round and the attempt at it, another one for each. ``encryption`` keys seal what
one client alone may read, ``masking`` keys make masks. Lists of clients are sorted; lists of keys,
boxes and digests are in the order of the clients beside them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from bfl.aggregation.weightings import Weighting
from bfl.errors import ProtocolError
from bfl.federation.client_metrics import NUM_EXAMPLES
from bfl.federation.secure_aggregation.masking import Ring
from bfl.federation.wire import ARRAYS, CONFIG, EXTRAS, METRICS, VERSION, WIRE_FORMAT, check_version
from bfl.texts import from_json

ADVERTISE_KEYS, SHARE_KEYS, CONFIRM, UNMASK = "advertise_keys", "share_keys", "confirm", "unmask"
"""The kinds of messages besides ``train``, whose reply is the masked vector: Flower's ``train.``
with one of these behind it."""

SECURE = "secure-aggregation"
"""The record of a message's fields, and, in a node's context, of what a client keeps."""

MASKED = "masked"
"""The one array of a masked reply."""

SAME_WEIGHT = 1e-9
"""Relative difference by which the server's float64 and a client's may round apart."""

_KINDS: Mapping[str, type] = {"int": int, "str": str, "bytes": bytes}


class Fields:
    """Base of what is made of whole numbers, texts, bytes, and lists of one of them."""

    def to_fields(self) -> dict[str, Any]:
        """Return the fields by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def to_record(self) -> ConfigRecord:
        """Return the fields as a record."""
        return ConfigRecord(self.to_fields())

    @classmethod
    def from_fields(cls, given: Mapping[str, Any]) -> Self:
        """Return the object that fields describe, or raise ProtocolError; others are ignored."""
        values = {}
        for field in fields(cls):  # type: ignore[arg-type]
            value, declared = given.get(field.name), str(field.type)
            kind = _KINDS[declared.removeprefix("list[").removesuffix("]")]
            several = declared.startswith("list")
            items = value if several and isinstance(value, list) else [value]
            if several != isinstance(value, list) or any(type(item) is not kind for item in items):
                raise ProtocolError(
                    f"{cls.__name__}: {field.name} is a {type(value).__name__}; expected {declared}"
                )
            values[field.name] = value
        return cls(**values)

    @classmethod
    def from_content(cls, content: RecordDict) -> Self:
        """Return the object that a message carries, or raise ProtocolError."""
        record = content.get(SECURE)
        if not isinstance(record, ConfigRecord):
            raise ProtocolError(f"the message has no record '{SECURE}'")
        return cls.from_fields(record)


@dataclass(frozen=True)
class Invitation(Fields):
    """Asks a client for keys."""

    label: str
    client: int


@dataclass(frozen=True)
class PublicKeys(Fields):
    """A client's keys of this round.

    Attributes:
        signature: Its signature under both, the label and its number; empty without one.
        own_mask: The digest of its own mask's secret, for the server to know it again.
    """

    encryption: bytes
    masking: bytes
    signature: bytes
    own_mask: bytes


@dataclass(frozen=True)
class Roster(Fields):
    """Tells a client who takes part, having sent keys, and its neighbours' keys."""

    label: str
    clients: list[int]
    neighbours: list[int]
    encryption: list[bytes]
    masking: list[bytes]
    signatures: list[bytes]


@dataclass(frozen=True)
class Shares(Fields):
    """A client's shares of its secrets, one box for each neighbour; or whose keys it refuses.

    Attributes:
        own_masks: The digest of each share of its own mask's secret, its own share's among them.
        masking: The same of its masking key's secret.
        refused: The neighbours whose keys lack the right signature; then the rest is empty.
    """

    receivers: list[int]
    boxes: list[bytes]
    own_masks: list[bytes]
    masking: list[bytes]
    refused: list[int]


@dataclass(frozen=True)
class Delivery(Fields):
    """Hands over the neighbours' shares, and so tells who can be masked with.

    Attributes:
        sharers: All who have sent shares; ``senders`` are this client's neighbours among them.
        own_masks: The digest of the share of each sender's own mask's secret.
        masking: The same of its masking key's secret.
    """

    label: str
    sharers: list[int]
    senders: list[int]
    boxes: list[bytes]
    own_masks: list[bytes]
    masking: list[bytes]


@dataclass(frozen=True)
class MaskedTask(Delivery):
    """Part of a client's task that asks for a masked vector: a delivery, and by what it is made.

    Attributes:
        weight: The client's weight, as 8 bytes of float64: the very number that the server knows.
        total: The sum of all clients' γ, in the same form: the weight is the client's own γ over
            it.
        exponents: The exponents of the statistics and, last, of the point parameters.
    """

    weight: bytes
    total: bytes
    exponents: list[int]

    @classmethod
    def of(
        cls, delivery: Delivery, weight: float, total: float, exponents: Sequence[int]
    ) -> MaskedTask:
        """Return the task that a delivery, a weight and the grid make."""
        return cls(
            **delivery.to_fields(),
            weight=np.float64(weight).tobytes(),
            total=np.float64(total).tobytes(),
            exponents=list(exponents),
        )

    @property
    def known_weight(self) -> float:
        """The client's weight."""
        return float(np.frombuffer(self.weight, np.float64)[0])

    @property
    def known_total(self) -> float:
        """The sum of all clients' γ."""
        return float(np.frombuffer(self.total, np.float64)[0])

    def check_weight(self, weighting: Weighting, num_examples: int, greatest: float) -> None:
        """Raise unless the weight is what the client's own examples make it, and not too great.

        All clients are told one total, or their masks stay: so no server can give one another
        weight than the others by that total, and read its vector in the sum. A client that has most
        of the examples has most of the weight all the same, for which there is the bound.

        Args:
            weighting: A scheme that goes by ``counts_only``.
            greatest: The greatest weight with which the client sends anything.
        """
        gamma = weighting.gamma_of_count(num_examples)
        if not is_share(self.known_weight, gamma, self.known_total):
            raise ProtocolError(
                f"the server gives this client the weight {self.known_weight:.6g}, which by "
                f"weighting '{weighting.name}' is not that of its {num_examples} examples where "
                f"all clients' sum is {self.known_total:.6g}; it sends nothing"
            )
        if self.known_weight > greatest:
            raise ProtocolError(
                f"the server gives this client the weight {self.known_weight:.6g}, and its node "
                "takes none that great (greatest-weight), as the sum of all would be too much its "
                "own update; it sends nothing"
            )


def is_share(weight: float, gamma: float, total: float) -> bool:
    """Return whether a weight is a client's γ as a share of the sum of all, up to rounding."""
    return math.isclose(weight * total, gamma, rel_tol=SAME_WEIGHT)


@dataclass(frozen=True)
class Survivors(Fields):
    """Tells whose masked vectors have come: ``clients``, sorted."""

    label: str
    clients: list[int]


@dataclass(frozen=True)
class Confirmations(Fields):
    """Confirmations of who takes part, for these clients or, handed over by the server, of them."""

    label: str
    clients: list[int]
    boxes: list[bytes]


@dataclass(frozen=True)
class Unmasking(Fields):
    """A client's shares of others' secrets; of each client of one secret alone.

    Attributes:
        survivors: Whose own masks are to be taken off, itself among them.
        own_masks: A share of the secret of each survivor's own mask.
        missing: Who has shared secrets and sent no vector.
        masking: A share of the secret of each missing one's masking key.
        unusable: Whose shares it cannot give: what was sealed for it is none, or not what the
            digests say.
    """

    survivors: list[int]
    own_masks: list[bytes]
    missing: list[int]
    masking: list[bytes]
    unusable: list[int]


def stage_content(message: Fields, configuration: str) -> RecordDict:
    """Return the content of a message to a client, besides the one that asks it to train."""
    config = ConfigRecord({VERSION: WIRE_FORMAT, "configuration": configuration})
    return RecordDict({CONFIG: config, SECURE: message.to_record()})


def configuration_of(content: RecordDict) -> str:
    """Return the run's configuration in a message to a client."""
    config: Any = content[CONFIG]
    check_version(config, "the server")
    return str(config["configuration"])


def write_masked_vector(vector: Ring, num_examples: int) -> RecordDict:
    """Return the content of a client's reply: its masked vector, and what the server knows."""
    return RecordDict(
        {
            ARRAYS: ArrayRecord({MASKED: Array(vector)}),
            METRICS: MetricRecord({NUM_EXAMPLES: num_examples}),
        }
    )


def read_masked_vector(content: RecordDict) -> Ring:
    """Return the masked vector in a client's reply, of whatever size and type it is."""
    record = content.get(ARRAYS)
    if not isinstance(record, ArrayRecord) or set(record) != {MASKED}:
        raise ProtocolError(f"the reply has not the one array '{MASKED}'")
    try:
        vector = record[MASKED].numpy()
    except Exception as error:  # whatever NumPy makes of bytes that a client has chosen
        raise ProtocolError(f"the masked vector cannot be read: {error}") from error
    if not isinstance(vector, np.ndarray):
        raise ProtocolError(f"the masked vector is a {type(vector).__name__}")
    return vector


ONE_CLIENTS_ENTRIES = frozenset(
    ("partition-id", "pooled-round", "damping", "examples", "test-examples", "run-folder")
)
"""Entries of a task for one client alone, or for those that look where the server has the data."""


def task_digest(
    content: RecordDict,
    exponents: Sequence[int],
    total: float,
    without_paths: Callable[[dict[str, Any]], Mapping[str, Any]],
) -> bytes:
    """Return a digest, 32 bytes, of what a round tells all of its clients.

    That is the posterior, the arrays beside it, the exponents, the sum of their γ, and of the task
    all that is not one client's: the run's configuration without where data lie, and what a
    ServerApp has added.

    A server that tells one client something else than the others, such as a grid on which the
    others' statistics are nothing, would read that client's update in the sum. Masks are made with
    this digest, so that masks of clients that were told different things do not cancel.

    Source: Pasquini et al. (2022), "Eluding secure aggregation in federated learning via model
    inconsistency", for the model; here all else that is alike goes into the digest as well.

    Args:
        content: The message that asks a client to train.
        exponents: The exponents of the statistics and, last, of the point parameters.
        total: The sum of all clients' γ, which makes weights of them.
        without_paths: Makes of a run's configuration the one without where data lie.
    """
    config: Any = content[CONFIG]
    shared = {key: value for key, value in config.items() if key not in ONE_CLIENTS_ENTRIES}
    shared["configuration"] = without_paths(from_json(shared["configuration"]))
    digest = hashlib.sha256(repr((_sort_keys(shared), list(exponents), total.hex())).encode())
    for name in (ARRAYS, EXTRAS):
        record = content.get(name)
        for key, array in sorted(record.items()) if isinstance(record, ArrayRecord) else ():
            header = (name, key, array.dtype, tuple(array.shape), array.stype, len(array.data))
            digest.update(repr(header).encode())
            digest.update(array.data)
    return digest.digest()


def _sort_keys(value: Any) -> Any:
    """Return a value whose text does not depend on the order of its keys."""
    if isinstance(value, Mapping):
        return [(key, _sort_keys(value[key])) for key in sorted(value)]
    return value
