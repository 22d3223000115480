"""Messages of clients and server, as plain fields, and the settings on which both agree.

| stage | from the server | from a client |
| --- | --- | --- |
| advertise keys | ``Invitation`` | ``PublicKeys`` |
| share keys | ``Roster`` | ``Shares`` |
| masked input | ``Delivery`` | its masked vector |
| consistency | ``Survivors`` | ``Confirmations`` |
| unmask | ``Confirmations`` | ``Unmasking`` |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from bfl.errors import ProtocolError
from bfl.federation.secure_aggregation.accuracy import ValueRange
from bfl.federation.secure_aggregation.masking import Neighbourhood


@dataclass(frozen=True)
class SecureSums:
    """Settings by which clients add up what the server may only know the sum of.

    Attributes:
        neighbourhood: Who exchanges masks with whom, and how many have to stay.
    """

    value_range: ValueRange
    neighbourhood: Neighbourhood


_KINDS: Mapping[str, type] = {"int": int, "str": str, "bytes": bytes}


class Fields:
    """Base of what is made of whole numbers, texts, bytes, and lists of one of them."""

    def to_fields(self) -> dict[str, Any]:
        """Return the fields by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_fields(cls, given: Mapping[str, Any]) -> Self:
        """Return what the fields say; others are passed over.

        Raises:
            ProtocolError: One is missing, or of another type.
        """
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


@dataclass(frozen=True)
class Invitation(Fields):
    """Asks a client for keys.

    Attributes:
        label: What the round and the attempt at it are called; another one for each.
    """

    label: str
    client: int


@dataclass(frozen=True)
class PublicKeys(Fields):
    """A client's keys of this round.

    Attributes:
        encryption: With which others seal what is for it alone.
        masking: With which others agree on masks with it.
        signature: Its signature under both, the label and its number; empty without one.
        own_mask: The digest of its own mask's secret, for the server to know it again.
    """

    encryption: bytes
    masking: bytes
    signature: bytes
    own_mask: bytes


@dataclass(frozen=True)
class Roster(Fields):
    """Tells a client who takes part, and its neighbours' keys.

    Attributes:
        clients: All who have sent keys, sorted.
        neighbours: Its neighbours among them, sorted.
        encryption: The neighbours' encryption keys, in this order.
    """

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
        own_masks: The digest of each share of its own mask's secret, in the order of the shares.
        masking: The digest of each share of its masking key's secret.
        refused: The neighbours whose keys are not signed as they have to be; then the rest is
            empty.
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
        sharers: All who have sent shares, sorted.
        boxes: What each has sealed for this client.
        own_masks: The digest of the share of each sender's own mask's secret.
        masking: The digest of the share of each sender's masking key's secret.
    """

    label: str
    sharers: list[int]
    senders: list[int]
    boxes: list[bytes]
    own_masks: list[bytes]
    masking: list[bytes]


@dataclass(frozen=True)
class Survivors(Fields):
    """Tells whose masked vectors have come.

    Attributes:
        clients: These clients, sorted.
    """

    label: str
    clients: list[int]


@dataclass(frozen=True)
class Confirmations(Fields):
    """Confirmations for the clients of who takes part.

    Attributes:
        clients: The clients that it is for or, handed over by the server, from.
        boxes: What is sealed for, or by, each.
    """

    label: str
    clients: list[int]
    boxes: list[bytes]


@dataclass(frozen=True)
class Unmasking(Fields):
    """A client's shares of others' secrets; of each client of one secret alone.

    Attributes:
        survivors: Whose own masks are to be taken off, itself among them.
        own_masks: A share of the secret of each one's own mask.
        missing: Who has shared secrets and sent no vector.
        masking: A share of the secret of each one's masking key.
        unusable: Whose shares it cannot give: what was sealed for it is none, or not what the
            digests say.
    """

    survivors: list[int]
    own_masks: list[bytes]
    missing: list[int]
    masking: list[bytes]
    unusable: list[int]
