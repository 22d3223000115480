"""Secure aggregation with clients in memory, who drop out and are lied to as told."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bfl.errors import ProtocolError
from bfl.federation.secure_aggregation import client as half
from bfl.federation.secure_aggregation.client import ClientSecrets
from bfl.federation.secure_aggregation.keys import Identity, Unsigned
from bfl.federation.secure_aggregation.masking import Ring
from bfl.federation.secure_aggregation.messages import (
    Confirmations,
    Delivery,
    Invitation,
    PublicKeys,
    Roster,
    Shares,
    Survivors,
    Unmasking,
)
from bfl.federation.secure_aggregation.server import SecureSum

TOLD = bytes(range(32))
"""A digest of what all clients are told."""

STAGES = ("keys", "shares", "masked", "confirm", "unmask")

Gone = Callable[[str, int], bool]


def nobody(stage: str, client: int) -> bool:
    return False


class Clients:
    """Clients with vectors, and their states; messages go through fields, as they travel."""

    def __init__(
        self,
        vectors: Mapping[int, Ring],
        identities: Mapping[int, Identity] | None = None,
        told: Mapping[int, bytes] | None = None,
    ) -> None:
        self.vectors = vectors
        self.told = told or dict.fromkeys(vectors, TOLD)
        self.identities = identities or dict.fromkeys(vectors, Unsigned())
        self.states: dict[int, ClientSecrets] = {}
        self.sent: dict[int, Ring] = {}

    def _keep(self, client: int, state: ClientSecrets) -> None:
        self.states[client] = ClientSecrets.from_fields(state.to_fields())

    def keys(self, client: int, message: Any) -> PublicKeys:
        asked = Invitation.from_fields(message.to_fields())
        state, reply = half.advertise(asked, self.identities[client])
        self._keep(client, state)
        return reply

    def shares(self, client: int, message: Any) -> Shares:
        roster = Roster.from_fields(message.to_fields())
        state, reply = half.share(self.states[client], roster, self.identities[client])
        self._keep(client, state)
        return reply

    def masked(self, client: int, message: Any) -> Ring:
        delivery, vector = Delivery.from_fields(message.to_fields()), self.vectors[client].copy()
        state, told = self.states[client], self.told[client]
        self._keep(client, half.mask_vector(state, delivery, vector, told))
        self.sent[client] = vector
        return vector

    def confirm(self, client: int, message: Any) -> Confirmations:
        survivors = Survivors.from_fields(message.to_fields())
        state, reply = half.confirm(self.states[client], survivors)
        self._keep(client, state)
        return reply

    def unmask(self, client: int, message: Any) -> Unmasking:
        heard = Confirmations.from_fields(message.to_fields())
        return half.unmask(self.states.pop(client), heard)


def stages(
    total: SecureSum, clients: Clients, begin: str = "keys"
) -> dict[str, tuple[Callable[[], Mapping[int, Any]], Callable[..., Any], Callable[..., None]]]:
    """Return what is sent at each stage from one on, what answers, and what takes the answers."""
    found: dict[str, Any] = {
        "keys": (total.invitations, clients.keys, total.take_keys),
        "shares": (total.rosters, clients.shares, total.take_shares),
        "masked": (total.deliveries, clients.masked, total.add_masked),
        "confirm": (total.confirmation_requests, clients.confirm, total.take_confirmations),
        "unmask": (total.unmasking_requests, clients.unmask, total.take_unmasking),
    }
    return {stage: found[stage] for stage in STAGES[STAGES.index(begin) :]}


def run(
    clients: Clients,
    gone: Gone = nobody,
    label: str = "run/1/0",
    until: str = "",
    refusals: list[str] | None = None,
    ignore: bool = False,
    told: bytes = TOLD,
) -> SecureSum:
    """Go through the stages up to one; who is gone, or refuses, does not answer.

    ``refusals`` gets what clients refuse; with ``ignore`` the server goes on without answers that
    it refuses, as in a run.
    """
    first = next(iter(clients.vectors.values()))
    total = SecureSum(label, clients.vectors, first.size, told)
    for stage, (messages, answer, take) in stages(total, clients).items():
        if stage == until:
            break
        answers = {}
        for client, message in messages().items():
            if gone(stage, client):
                continue
            try:
                answers[client] = answer(client, message)
            except ProtocolError as error:
                if refusals is None:
                    raise
                refusals.append(str(error))
        for client, said in sorted(answers.items(), reverse=True):
            try:
                take(client, said)
            except ProtocolError:
                if not ignore:
                    raise
    return total


def random_vectors(count: int, size: int = 40, seed: int = 0) -> dict[int, Ring]:
    generator = np.random.default_rng(seed)
    return {
        # Numbers of clients need not begin at 0, nor follow each other.
        3 * k + 1: generator.integers(0, 2**64, size, dtype=np.uint64)
        for k in range(count)
    }


def plain_sum(vectors: Mapping[int, Ring], clients: list[int]) -> Ring:
    total = np.zeros_like(next(iter(vectors.values())))
    for client in clients:
        total += vectors[client]
    return total
