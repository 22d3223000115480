"""The server's half of secure aggregation: it hands messages on, and learns the sum.

Source: Bonawitz et al. (2017), figure 4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import numpy as np

from bfl.errors import ProtocolError, TooFewClientsError, UnusableClientsError
from bfl.federation.exchanges import FEWEST_CLIENTS
from bfl.federation.secure_aggregation import keys
from bfl.federation.secure_aggregation.keys import DIGEST, MASKING, OWN_MASK, SECRET, KeyPair
from bfl.federation.secure_aggregation.masking import Ring, combine, mask, neighbours_of, threshold
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


class SecureSum:
    """The sum of clients' vectors in one attempt at a round.

    For each stage there is what is sent, by client, and a function that takes an answer; who does
    not answer has dropped out. Answers come in any order, and the sum does not depend on it.

    A client that keeps the attempt from ending is named where that is sure, or where so many of its
    neighbours say so that they could keep the attempt from ending themselves: who says it falsely
    gains nothing.

    An answer that is not as it has to be is a ProtocolError. Where too few answers have come the
    next stage is a TooFewClientsError, or an UnusableClientsError that names who is the cause.

    Args:
        label: The name of the round and the attempt; another one for each.
        size: The number of a vector's elements.
        task_digest: The digest of what all clients are told with their tasks.
    """

    def __init__(self, label: str, clients: Iterable[int], size: int, task_digest: bytes) -> None:
        self._label = label
        self._task_digest = task_digest
        self._clients = sorted(clients)
        self._size = size
        self._keys: dict[int, PublicKeys] = {}
        self._neighbours: dict[int, list[int]] = {}
        self._boxes: dict[int, dict[int, bytes]] = {}
        self._dealt: dict[int, Shares] = {}
        self._refusals: dict[int, set[int]] = {}
        self._survivors: set[int] = set()
        self._total = np.zeros(size, np.uint64)
        self._confirmed: dict[int, dict[int, bytes]] = {}
        self._own_masks: dict[int, dict[int, bytes]] = {}
        self._masking: dict[int, dict[int, bytes]] = {}

    def invitations(self) -> dict[int, Invitation]:
        """Return what asks each client for keys."""
        return {client: Invitation(self._label, client) for client in self._clients}

    def take_keys(self, client: int, given: PublicKeys) -> None:
        """Take a client's keys."""
        if client in self._keys:
            raise ProtocolError("keys have come already")
        there = {key for each in self._keys.values() for key in (each.encryption, each.masking)}
        if given.encryption == given.masking or there & {given.encryption, given.masking}:
            raise ProtocolError("a key stands twice, or is another client's")
        if len(given.own_mask) != DIGEST:
            raise ProtocolError("the digest of the own mask's secret is none")
        for public in (given.encryption, given.masking):
            KeyPair(keys.new_secret()).agree_on_key(public, "a check")
        self._keys[client] = given

    @property
    def unsigned(self) -> list[int]:
        """The clients whose keys nobody can tell from the server's own, sorted."""
        return sorted(client for client, given in self._keys.items() if not given.signature)

    def rosters(self) -> dict[int, Roster]:
        """Return what tells each client of its neighbours."""
        clients = sorted(self._keys)
        self._require(len(clients) >= FEWEST_CLIENTS, "keys", clients)
        self._neighbours = {
            client: neighbours_of(client, clients, self._label) for client in clients
        }
        return {
            client: Roster(
                label=self._label,
                clients=clients,
                neighbours=near,
                encryption=[self._keys[other].encryption for other in near],
                masking=[self._keys[other].masking for other in near],
                signatures=[self._keys[other].signature for other in near],
            )
            for client, near in self._neighbours.items()
        }

    def take_shares(self, client: int, shares: Shares) -> None:
        """Take the boxes that a client has sealed for its neighbours."""
        near = self._neighbours.get(client, [])
        if shares.refused and set(shares.refused) <= set(near):
            self._refuse(client, shares.refused)
            raise ProtocolError(
                f"it goes with no keys of clients {_names(shares.refused)}: not signed with those "
                "that its own list of clients has for them"
            )
        if shares.receivers != near or len(shares.boxes) != len(near):
            raise ProtocolError("the shares are for others than the client's neighbours")
        for digests in (shares.own_masks, shares.masking):
            if [*map(len, digests)] != [DIGEST] * (len(near) + 1):
                raise ProtocolError("there are not as many digests as shares")
        self._boxes[client] = dict(zip(shares.receivers, shares.boxes, strict=True))
        self._dealt[client] = shares

    def deliveries(self) -> dict[int, Delivery]:
        """Return what hands each client its neighbours' shares."""
        try:
            self._require_shares(self._boxes, "shares")
        except TooFewClientsError:
            self._raise_refused("its keys are not signed as {} have to see them signed", self._keys)
            raise
        sharers = sorted(self._boxes)
        deliveries = {}
        for client in sharers:
            senders = [other for other in self._neighbours[client] if other in self._boxes]
            deliveries[client] = Delivery(
                label=self._label,
                sharers=sharers,
                senders=senders,
                boxes=[self._boxes[other][client] for other in senders],
                own_masks=[self._digest(other, client, OWN_MASK) for other in senders],
                masking=[self._digest(other, client, MASKING) for other in senders],
            )
        return deliveries

    def add_masked(self, client: int, vector: Ring) -> None:
        """Add a client's masked vector, which is not kept."""
        if vector.dtype != np.uint64 or vector.shape != (self._size,):
            raise ProtocolError(
                f"the masked vector has type {vector.dtype} and shape {vector.shape}; expected "
                f"uint64 and ({self._size},)"
            )
        if client in self._survivors or client not in self._boxes:
            raise ProtocolError("the masked vector was not asked for")
        self._survivors.add(client)
        self._total += vector

    @property
    def survivors(self) -> list[int]:
        """Clients whose vectors are in the sum, sorted."""
        return sorted(self._survivors)

    def confirmation_requests(self) -> dict[int, Survivors]:
        """Return what tells each client that is left who is."""
        self._require_shares(self._survivors, "masked vectors")
        for client in self._dropouts():
            holders = self._survivors & set(self._neighbours[client])
            self._require(len(holders) >= self._threshold(client), "masked vectors", holders)
        return dict.fromkeys(self.survivors, Survivors(self._label, self.survivors))

    def take_confirmations(self, client: int, confirmations: Confirmations) -> None:
        """Take what a client has sealed for its neighbours."""
        near = self._survivors & set(self._neighbours.get(client, []))
        if confirmations.label != self._label:
            raise ProtocolError("the confirmations are of another attempt")
        if client not in self._survivors or confirmations.clients != sorted(near):
            raise ProtocolError("confirmations are for others than the neighbours that are left")
        if len(confirmations.boxes) != len(near):
            raise ProtocolError("there are not as many confirmations as neighbours that are left")
        for other, box in zip(confirmations.clients, confirmations.boxes, strict=True):
            self._confirmed.setdefault(other, {})[client] = box

    def unmasking_requests(self) -> dict[int, Confirmations]:
        """Return what hands each client its neighbours' confirmations."""
        return {
            client: Confirmations(self._label, list(boxes), list(boxes.values()))
            for client, boxes in sorted(self._confirmed.items())
        }

    def take_unmasking(self, client: int, shares: Unmasking) -> None:
        """Take a client's shares of others' secrets."""
        sharers = self._boxes.keys() & {client, *self._neighbours.get(client, [])}
        if not set(shares.unusable) <= sharers - {client}:
            raise ProtocolError("others are named than those who have sent it shares")
        sharers -= set(shares.unusable)
        own_masks = (OWN_MASK, shares.survivors, shares.own_masks, sharers & self._survivors)
        masking = (MASKING, shares.missing, shares.masking, sharers - self._survivors)
        for what, owners, values, wanted in (own_masks, masking):
            if sorted(owners) != sorted(wanted) or [*map(len, values)] != [SECRET] * len(wanted):
                raise ProtocolError("the shares are not those of the client's neighbours")
            for owner, share in zip(owners, values, strict=True):
                digest = keys.digest_of_share(share, owner, client, what, self._label)
                if digest != self._digest(owner, client, what):
                    raise ProtocolError(f"the share of client {owner} is not the one it was dealt")
        self._refuse(client, shares.unusable)
        for what, owners, values, _ in (own_masks, masking):
            held = self._own_masks if what == OWN_MASK else self._masking
            for owner, share in zip(owners, values, strict=True):
                held.setdefault(owner, {})[self._number(owner, client)] = share

    def total(self) -> Ring:
        """Return the sum (N,) of the survivors' vectors, modulo 2⁶⁴.

        Raises:
            TooFewClientsError: Too few have sent shares; nothing was unmasked.
            UnusableClientsError: The shares of some are none, or do not give the secrets that they
                are of; nothing was unmasked.
        """
        own, pairs = self._secrets()
        for secret in own.values():
            mask(self._total, keys.derive_key(secret, f"own mask, {self._label}"), -1)
        purpose = keys.mask_between(self._label, self._task_digest)
        for client, pair in pairs.items():
            for other in sorted(self._survivors & set(self._neighbours[client])):
                key = pair.agree_on_key(self._keys[other].masking, purpose)
                # What the survivor has added is taken off, and the other way round.
                mask(self._total, key, -1 if other < client else 1)
        return self._total

    def _secrets(self) -> tuple[dict[int, bytes], dict[int, KeyPair]]:
        """Return the secrets of the masks that are in the sum: survivors' own, others' keys."""
        own, pairs, reasons = {}, {}, {}
        try:
            for client in (*self.survivors, *self._dropouts()):
                given = self._keys[client]
                try:
                    if client in self._survivors:
                        own[client] = self._secret(
                            client, self._own_masks, keys.digest_of, given.own_mask
                        )
                    else:
                        pairs[client] = KeyPair(
                            self._secret(
                                client,
                                self._masking,
                                lambda secret: KeyPair(secret).public,
                                given.masking,
                            )
                        )
                except ProtocolError as error:
                    # Each share is the one that it has dealt: this is nobody else's doing.
                    reasons[client] = str(error)
        except TooFewClientsError:
            itself = {c for c in self._boxes if self._number(c, c) in self._own_masks.get(c, {})}
            self._raise_refused("{} were sealed no shares of its secrets", itself)
            raise
        if reasons:
            raise UnusableClientsError(reasons)
        return own, pairs

    def _secret(
        self,
        client: int,
        shares: dict[int, dict[int, bytes]],
        known_by: Callable[[bytes], bytes],
        expected: bytes,
    ) -> bytes:
        held, needed = shares.get(client, {}), self._threshold(client)
        if len(held) < needed:
            raise TooFewClientsError(
                f"{len(held)} shares of client {client}'s secret have come; needed are {needed}"
            )
        return combine(held, needed, lambda secret: known_by(secret) == expected)

    def _dropouts(self) -> list[int]:
        return [
            client
            for client in sorted(self._boxes.keys() - self._survivors)
            if self._survivors & set(self._neighbours[client])
        ]

    def _refuse(self, client: int, refused: Iterable[int]) -> None:
        for other in refused:
            self._refusals.setdefault(other, set()).add(client)

    def _raise_refused(self, why: str, there: Collection[int]) -> None:
        """Raise if so many neighbours cannot go on with a client that nobody could without them."""
        reasons = {}
        for client, refusing in self._refusals.items():
            others = len(self._neighbours[client]) - len(refusing)
            if others + (client in there) < self._threshold(client):
                reasons[client] = why.format(f"clients {_names(refusing)}")
        if reasons:
            raise UnusableClientsError(reasons)

    def _digest(self, owner: int, holder: int, what: str) -> bytes:
        dealt, place = self._dealt[owner], self._number(owner, holder) - 1
        return (dealt.own_masks if what == OWN_MASK else dealt.masking)[place]

    def _number(self, owner: int, holder: int) -> int:
        return sorted([owner, *self._neighbours[owner]]).index(holder) + 1

    def _threshold(self, client: int) -> int:
        return threshold(len(self._neighbours[client]) + 1)

    def _require_shares(self, left: Iterable[int], what: str) -> None:
        """Raise unless all who are left have enough of their neighbours."""
        there = set(left)
        self._require(len(there) >= FEWEST_CLIENTS - 1, what, there)
        for client in there:
            near = there & set(self._neighbours[client])
            self._require(len(near) + 1 >= self._threshold(client), what, there)

    def _require(self, enough: bool, what: str, there: Iterable[int]) -> None:
        if not enough:
            raise TooFewClientsError(
                f"{what} have come of clients {_names(there) or 'none'} alone, of "
                f"{len(self._clients)} asked: too few to take masks off"
            )


def _names(clients: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(clients)))
