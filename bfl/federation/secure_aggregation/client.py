"""A client's half of secure aggregation, as pure steps from one state to the next.

A state goes through the stages in their order, once. A step that comes again, or too early, is
refused with a ProtocolError, as is a message whose lists are not as they have to be: no server gets
a second vector under the same masks, or both of a client's secrets.

Source: Bonawitz et al. (2017), figure 4; in the consistency round, what each has been told is
sealed for its neighbours with the keys that the clients agree on, in place of a signature.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

from bfl.errors import ProtocolError
from bfl.federation.exchanges import FEWEST_CLIENTS
from bfl.federation.secure_aggregation import keys
from bfl.federation.secure_aggregation.keys import MASKING, OWN_MASK, SECRET, Identity, KeyPair
from bfl.federation.secure_aggregation.masking import Ring, mask, neighbours_of, split, threshold
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

ADVERTISED, SHARED, MASKED, CONFIRMED = "advertised", "shared", "masked", "confirmed"


@dataclass(frozen=True)
class ClientSecrets(Fields):
    """Secrets that a client keeps between two messages of a round; they never leave it.

    Attributes:
        own_share: Its own share of ``own_mask``.
        boxes: What the senders have sealed for it; ``own_masks`` and ``masking_digests`` are the
            digests of the shares in them.
        told: The digest of what it was told with its task.
    """

    stage: str
    label: str
    client: int
    encryption: bytes
    masking: bytes
    own_mask: bytes
    clients: list[int] = field(default_factory=list)
    neighbours: list[int] = field(default_factory=list)
    encryption_keys: list[bytes] = field(default_factory=list)
    masking_keys: list[bytes] = field(default_factory=list)
    own_share: bytes = b""
    sharers: list[int] = field(default_factory=list)
    senders: list[int] = field(default_factory=list)
    boxes: list[bytes] = field(default_factory=list)
    own_masks: list[bytes] = field(default_factory=list)
    masking_digests: list[bytes] = field(default_factory=list)
    told: bytes = b""
    survivors: list[int] = field(default_factory=list)

    def key(self, neighbour: int, purpose: str) -> bytes:
        """Return the key agreed on with a neighbour, for what only the two of them read."""
        public = self.encryption_keys[self.neighbours.index(neighbour)]
        return KeyPair(self.encryption).agree_on_key(public, f"{purpose}, {self.label}")

    def view(self, survivors: list[int]) -> bytes:
        """Return a digest of all that it has been told: who takes part, and what all are told."""
        view = repr((self.label, self.clients, self.sharers, self.told, survivors))
        return hashlib.sha256(view.encode()).digest()


def advertise(invitation: Invitation, identity: Identity) -> tuple[ClientSecrets, PublicKeys]:
    """Make fresh keys, whatever there was before."""
    state = ClientSecrets(
        ADVERTISED,
        invitation.label,
        invitation.client,
        keys.new_secret(),
        keys.new_secret(),
        keys.new_secret(),
    )
    public = KeyPair(state.encryption).public, KeyPair(state.masking).public
    signature = identity.sign(keys.text_to_sign(state.label, state.client, *public))
    return state, PublicKeys(*public, signature, keys.digest_of(state.own_mask))


def share(state: ClientSecrets, roster: Roster, identity: Identity) -> tuple[ClientSecrets, Shares]:
    """Split the secrets into shares for the neighbours; or say whose keys are not signed.

    Nothing is shared then: the server may leave them out, and make another attempt.
    """
    _expect(state, ADVERTISED, roster.label)
    clients, near = roster.clients, roster.neighbours
    if clients != sorted(set(clients)) or state.client not in clients:
        raise ProtocolError("the list of clients is not sorted, or this client is not in it")
    if len(clients) < FEWEST_CLIENTS:
        raise ProtocolError(f"there are {len(clients)} clients; needed are {FEWEST_CLIENTS}")
    if near != neighbours_of(state.client, clients, state.label):
        raise ProtocolError("the neighbours are not those that follow from the list of clients")
    lists = (roster.encryption, roster.masking, roster.signatures)
    if any(len(each) != len(near) for each in lists):
        raise ProtocolError("there are not as many keys as neighbours")
    own = [KeyPair(state.encryption).public, KeyPair(state.masking).public]
    public = [*own, *roster.encryption, *roster.masking]
    if len(set(public)) != len(public):
        raise ProtocolError("two clients have the same key")
    refused = []
    for client, encryption, masking, signature in zip(near, *lists, strict=True):
        try:
            text = keys.text_to_sign(state.label, client, encryption, masking)
            identity.check(client, text, signature)
        except ProtocolError:
            refused.append(client)
    if refused:
        return state, Shares([], [], [], [], refused)

    members = sorted([state.client, *near])
    needed = threshold(len(members))
    key_shares = dict(zip(members, split(state.masking, needed, len(members)), strict=True))
    mask_shares = dict(zip(members, split(state.own_mask, needed, len(members)), strict=True))
    state = replace(
        state,
        stage=SHARED,
        clients=clients,
        neighbours=near,
        encryption_keys=roster.encryption,
        masking_keys=roster.masking,
        own_share=mask_shares[state.client],
    )
    boxes = [
        keys.seal_box(
            state.key(other, "shares"),
            key_shares[other] + mask_shares[other],
            f"shares of {state.client} for {other}",
        )
        for other in near
    ]
    own_masks, masking_digests = (
        [
            keys.digest_of_share(shares[member], state.client, member, what, state.label)
            for member in members
        ]
        for shares, what in ((mask_shares, OWN_MASK), (key_shares, MASKING))
    )
    return state, Shares(near, boxes, own_masks, masking_digests, [])


def mask_vector(
    state: ClientSecrets, delivery: Delivery, vector: Ring, task_digest: bytes
) -> ClientSecrets:
    """Mask a vector in place: with a mask of the client's own, and one for each neighbour.

    Args:
        task_digest: The digest of what the vector was made of and all clients are told; masks with
            neighbours that were told something else stay in the sum.
    """
    _expect(state, SHARED, delivery.label)
    sharers, senders = delivery.sharers, delivery.senders
    if sharers != sorted(set(sharers) & set(state.clients)) or state.client not in sharers:
        raise ProtocolError("those who have sent shares are not some of the clients")
    if senders != [other for other in state.neighbours if other in sharers]:
        raise ProtocolError("the senders are not the neighbours who have sent shares")
    lists = (delivery.boxes, delivery.own_masks, delivery.masking)
    if any(len(each) != len(senders) for each in lists):
        raise ProtocolError("there are not as many boxes, and digests, as senders")
    _check_enough(state, len(senders) + 1, "have sent shares")
    mask(vector, keys.derive_key(state.own_mask, f"own mask, {state.label}"), 1)
    pair = KeyPair(state.masking)
    for other in senders:
        public = state.masking_keys[state.neighbours.index(other)]
        # Of two clients one adds what the other takes off.
        key = pair.agree_on_key(public, keys.mask_between(state.label, task_digest))
        mask(vector, key, 1 if state.client < other else -1)
    return replace(
        state,
        stage=MASKED,
        masking=b"",
        own_mask=b"",
        sharers=sharers,
        senders=senders,
        boxes=delivery.boxes,
        own_masks=delivery.own_masks,
        masking_digests=delivery.masking,
        told=task_digest,
    )


def confirm(state: ClientSecrets, survivors: Survivors) -> tuple[ClientSecrets, Confirmations]:
    """Tell the neighbours what the server has told of who takes part."""
    _expect(state, MASKED, survivors.label)
    alive = survivors.clients
    if alive != sorted(set(alive) & set(state.sharers)) or state.client not in alive:
        raise ProtocolError("the survivors are not some of those who have sent shares")
    near = [other for other in state.senders if other in alive]
    _check_enough(state, len(near) + 1, "are left")
    digest = state.view(alive)
    boxes = [
        keys.seal_box(
            state.key(other, "confirmation"), digest, f"confirmation of {state.client} for {other}"
        )
        for other in near
    ]
    state = replace(state, stage=CONFIRMED, survivors=alive)
    return state, Confirmations(state.label, near, boxes)


def unmask(state: ClientSecrets, confirmations: Confirmations) -> Unmasking:
    """Return shares that take masks off, if enough neighbours have been told the same.

    The state is spent: whoever keeps it has to forget it before the answer is sent. A confirmation
    that is none, or of something else, counts as one that the server has not handed over, which it
    might as well do; and a box that does not hold what its digests say as a share less.
    """
    _expect(state, CONFIRMED, confirmations.label)
    clients = confirmations.clients
    near = set(state.senders) & set(state.survivors)
    if not set(clients) <= near or len(set(clients)) != len(clients):
        raise ProtocolError("confirmations are of others than the neighbours that are left")
    agreeing = sum(
        _confirms(state, other, box)
        for other, box in zip(clients, confirmations.boxes, strict=True)
    )
    _check_enough(state, agreeing + 1, "confirm the same")
    own_masks, masking, unusable = {state.client: state.own_share}, {}, []
    for other in state.senders:
        shares = _shares_of(state, other)
        if shares is None:
            unusable.append(other)
        elif other in state.survivors:
            own_masks[other] = shares[1]
        else:
            masking[other] = shares[0]
    return Unmasking([*own_masks], [*own_masks.values()], [*masking], [*masking.values()], unusable)


def _confirms(state: ClientSecrets, other: int, box: bytes) -> bool:
    context = f"confirmation of {other} for {state.client}"
    try:
        confirmation = keys.open_box(state.key(other, "confirmation"), box, context)
    except ProtocolError:
        return False
    return confirmation == state.view(state.survivors)


def _shares_of(state: ClientSecrets, other: int) -> tuple[bytes, bytes] | None:
    """Return the shares of a neighbour's masking key and own mask; None if they are none."""
    place = state.senders.index(other)
    context = f"shares of {other} for {state.client}"
    try:
        text = keys.open_box(state.key(other, "shares"), state.boxes[place], context)
    except ProtocolError:
        return None
    shares = text[:SECRET], text[SECRET:]
    digests = [
        keys.digest_of_share(part, other, state.client, what, state.label)
        for part, what in zip(shares, (MASKING, OWN_MASK), strict=True)
    ]
    expected = [state.masking_digests[place], state.own_masks[place]]
    return shares if len(text) == 2 * SECRET and digests == expected else None


def _expect(state: ClientSecrets, stage: str, label: str) -> None:
    """Raise unless the state is of this attempt and stage."""
    if state.label != label:
        raise ProtocolError(
            f"client {state.client} is in {state.label}, and the message is of {label}"
        )
    if state.stage != stage:
        raise ProtocolError(
            f"client {state.client} has {state.stage} in {state.label} and is asked for what comes "
            f"after it has {stage}"
        )


def _check_enough(state: ClientSecrets, members: int, what: str) -> None:
    holders = len(state.neighbours) + 1  # of shares of its secrets: itself and its neighbours
    needed = threshold(holders)
    if members < needed:
        raise ProtocolError(
            f"client {state.client}: {members} of {holders} neighbours, itself among them, {what}; "
            f"needed are {needed}"
        )
