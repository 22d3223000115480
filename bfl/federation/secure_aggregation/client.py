"""A client's half of secure aggregation, as pure steps from one state to the next.

A state goes through the stages in their order, once: a step that comes again, or too early, is
refused, so that no server gets a second masked vector under the same masks, or both of a client's
secrets. After the last stage nothing is left to ask for.

Source: Bonawitz et al. (2017), "Practical secure aggregation for privacy-preserving machine
learning", figure 4; in the consistency round, what each has been told is sealed for its neighbours
with the keys that the clients agree on, in place of a signature.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from bfl.federation.secure_aggregation.errors import ProtocolError
from bfl.federation.secure_aggregation.fixed_point import Ring
from bfl.federation.secure_aggregation.identity import Identity, signed_text
from bfl.federation.secure_aggregation.keys import (
    SECRET,
    KeyPair,
    derived,
    digest_of,
    new_secret,
    opened,
    sealed,
)
from bfl.federation.secure_aggregation.masks import mask
from bfl.federation.secure_aggregation.messages import (
    Confirmations,
    Delivery,
    Fields,
    Invitation,
    PublicKeys,
    Roster,
    Shares,
    Survivors,
    Unmasking,
)
from bfl.federation.secure_aggregation.neighbours import FEWEST_CLIENTS, Neighbourhood
from bfl.federation.secure_aggregation.shares import split

ADVERTISED, SHARED, MASKED, CONFIRMED = "advertised", "shared", "masked", "confirmed"


@dataclass(frozen=True)
class ClientSecrets(Fields):
    """What a client keeps between two messages of a round; it never leaves it.

    Attributes:
        stage: What it has done last.
        label: What the round and the attempt are called.
        client: Its number.
        encryption: The secret of its encryption key.
        masking: The secret of its masking key.
        own_mask: The secret of its own mask.
        clients: All who take part.
        neighbours: Its neighbours.
        encryption_keys: Their public keys, in this order.
        masking_keys: Likewise.
        own_share: Its own share of ``own_mask``.
        sharers: All who have sent shares.
        senders: Those of them who are its neighbours.
        boxes: What they have sealed for it.
        survivors: Whose masked vectors have come.
    """

    stage: str
    label: str
    client: int
    encryption: bytes
    masking: bytes
    own_mask: bytes
    clients: list[int]
    neighbours: list[int]
    encryption_keys: list[bytes]
    masking_keys: list[bytes]
    own_share: bytes
    sharers: list[int]
    senders: list[int]
    boxes: list[bytes]
    survivors: list[int]

    @property
    def threshold_members(self) -> int:
        """How many hold shares of its secrets: itself and its neighbours."""
        return len(self.neighbours) + 1

    def key(self, neighbour: int, purpose: str) -> bytes:
        """Return the key agreed on with a neighbour, for what only the two of them read."""
        public = self.encryption_keys[self.neighbours.index(neighbour)]
        return KeyPair(self.encryption).agreed(public, f"{purpose}, {self.label}")

    def view(self, survivors: list[int]) -> bytes:
        """Return a digest of all that it has been told of who takes part."""
        told = repr((self.label, self.clients, self.sharers, survivors))
        return hashlib.sha256(told.encode()).digest()


def advertise(
    asked: Invitation, identity: Identity, secret: Callable[[], bytes] = new_secret
) -> tuple[ClientSecrets, PublicKeys]:
    """Make fresh keys, whatever there was before.

    Args:
        asked: The server's message.
        identity: Who the client is.
        secret: Gives fresh secrets.
    """
    state = ClientSecrets(
        stage=ADVERTISED,
        label=asked.label,
        client=asked.client,
        encryption=secret(),
        masking=secret(),
        own_mask=secret(),
        clients=[],
        neighbours=[],
        encryption_keys=[],
        masking_keys=[],
        own_share=b"",
        sharers=[],
        senders=[],
        boxes=[],
        survivors=[],
    )
    keys = KeyPair(state.encryption).public, KeyPair(state.masking).public
    signature = identity.sign(signed_text(asked.label, asked.client, *keys))
    return state, PublicKeys(*keys, signature, digest_of(state.own_mask))


def share(
    state: ClientSecrets, roster: Roster, neighbourhood: Neighbourhood, identity: Identity
) -> tuple[ClientSecrets, Shares]:
    """Split the secrets into shares for the neighbours.

    Raises:
        ProtocolError: The stage is another one, the clients are too few, or the neighbours are not
            those that they have to be, have one key twice, or have not signed theirs.
    """
    _expect(state, ADVERTISED)
    _check_roster(state, roster, neighbourhood)
    for client, encryption, masking, signature in zip(
        roster.neighbours, roster.encryption, roster.masking, roster.signatures, strict=True
    ):
        identity.check(client, signed_text(state.label, client, encryption, masking), signature)
    members = sorted([state.client, *roster.neighbours])
    threshold = neighbourhood.threshold(len(members))
    of_key = dict(zip(members, split(state.masking, threshold, len(members)), strict=True))
    of_mask = dict(zip(members, split(state.own_mask, threshold, len(members)), strict=True))
    state = replace(
        state,
        stage=SHARED,
        clients=roster.clients,
        neighbours=roster.neighbours,
        encryption_keys=roster.encryption,
        masking_keys=roster.masking,
        own_share=of_mask[state.client],
    )
    boxes = [
        sealed(
            state.key(other, "shares"),
            of_key[other] + of_mask[other],
            f"shares of {state.client} for {other}",
        )
        for other in roster.neighbours
    ]
    return state, Shares(roster.neighbours, boxes)


def masked(
    state: ClientSecrets, delivery: Delivery, vector: Ring, neighbourhood: Neighbourhood
) -> ClientSecrets:
    """Mask a vector in place: with a mask of the client's own, and one for each neighbour.

    Raises:
        ProtocolError: The stage is another one, or too few neighbours have sent shares.
    """
    _expect(state, SHARED)
    _check_delivery(state, delivery, neighbourhood)
    mask(vector, derived(state.own_mask, f"own mask, {state.label}"), 1)
    pair = KeyPair(state.masking)
    for other in delivery.senders:
        public = state.masking_keys[state.neighbours.index(other)]
        # Of two clients one adds what the other takes off.
        mask(vector, pair.agreed(public, f"mask, {state.label}"), 1 if state.client < other else -1)
    return replace(
        state,
        stage=MASKED,
        masking=b"",
        own_mask=b"",
        sharers=delivery.sharers,
        senders=delivery.senders,
        boxes=delivery.boxes,
    )


def confirm(
    state: ClientSecrets, survivors: Survivors, neighbourhood: Neighbourhood
) -> tuple[ClientSecrets, Confirmations]:
    """Tell the neighbours what the server has told of who takes part.

    Raises:
        ProtocolError: The stage is another one, or the survivors are too few, or others than those
            who have shared.
    """
    _expect(state, MASKED)
    alive = survivors.clients
    if alive != sorted(set(alive) & set(state.sharers)) or state.client not in alive:
        raise ProtocolError("the survivors are not some of those who have sent shares")
    near = [other for other in state.senders if other in alive]
    _check_enough(state, len(near) + 1, neighbourhood, "are left")
    digest = state.view(alive)
    boxes = [
        sealed(
            state.key(other, "confirmation"), digest, f"confirmation of {state.client} for {other}"
        )
        for other in near
    ]
    return replace(state, stage=CONFIRMED, survivors=alive), Confirmations(near, boxes)


def unmask(state: ClientSecrets, heard: Confirmations, neighbourhood: Neighbourhood) -> Unmasking:
    """Return shares that take masks off, if enough neighbours have been told the same.

    The state is spent: whoever keeps it has to forget it before the answer is sent.

    Raises:
        ProtocolError: The stage is another one, too few neighbours confirm what this client has
            been told, or one was told something else.
    """
    _expect(state, CONFIRMED)
    own = state.view(state.survivors)
    near = set(state.senders) & set(state.survivors)
    if not set(heard.clients) <= near or len(set(heard.clients)) != len(heard.clients):
        raise ProtocolError("confirmations are of others than the neighbours that are left")
    for other, box in zip(heard.clients, heard.boxes, strict=True):
        context = f"confirmation of {other} for {state.client}"
        if opened(state.key(other, "confirmation"), box, context) != own:
            raise ProtocolError(f"client {other} was told of other clients than this one")
    _check_enough(state, len(heard.clients) + 1, neighbourhood, "confirm the same")
    own_masks, masking = {state.client: state.own_share}, {}
    for other, box in zip(state.senders, state.boxes, strict=True):
        shares = opened(state.key(other, "shares"), box, f"shares of {other} for {state.client}")
        if other in state.survivors:
            own_masks[other] = shares[SECRET:]
        else:
            masking[other] = shares[:SECRET]
    return Unmasking([*own_masks], [*own_masks.values()], [*masking], [*masking.values()])


def _expect(state: ClientSecrets, stage: str) -> None:
    if state.stage != stage:
        raise ProtocolError(
            f"client {state.client} has {state.stage} in {state.label} and is asked for what comes "
            f"after it has {stage}"
        )


def _check_enough(
    state: ClientSecrets, members: int, neighbourhood: Neighbourhood, what: str
) -> None:
    needed = neighbourhood.threshold(state.threshold_members)
    if members < needed:
        raise ProtocolError(
            f"client {state.client}: {members} of {state.threshold_members} neighbours, itself "
            f"among them, {what}; needed are {needed}"
        )


def _check_roster(state: ClientSecrets, roster: Roster, neighbourhood: Neighbourhood) -> None:
    clients = roster.clients
    if clients != sorted(set(clients)) or state.client not in clients:
        raise ProtocolError("the list of clients is not sorted, or this client is not in it")
    if len(clients) < FEWEST_CLIENTS:
        raise ProtocolError(f"there are {len(clients)} clients; needed are {FEWEST_CLIENTS}")
    if roster.neighbours != neighbourhood.of(state.client, clients, state.label):
        raise ProtocolError("the neighbours are not those that follow from the list of clients")
    lists = (roster.encryption, roster.masking, roster.signatures)
    if any(len(each) != len(roster.neighbours) for each in lists):
        raise ProtocolError("there are not as many keys as neighbours")
    own = [KeyPair(state.encryption).public, KeyPair(state.masking).public]
    keys = [*own, *roster.encryption, *roster.masking]
    if len(set(keys)) != len(keys):
        raise ProtocolError("two clients have the same key")


def _check_delivery(state: ClientSecrets, delivery: Delivery, neighbourhood: Neighbourhood) -> None:
    sharers = delivery.sharers
    if sharers != sorted(set(sharers) & set(state.clients)) or state.client not in sharers:
        raise ProtocolError("those who have sent shares are not some of the clients")
    if delivery.senders != [other for other in state.neighbours if other in sharers]:
        raise ProtocolError("the senders are not the neighbours who have sent shares")
    if len(delivery.boxes) != len(delivery.senders):
        raise ProtocolError("there are not as many boxes as senders")
    _check_enough(state, len(delivery.senders) + 1, neighbourhood, "have sent shares")
