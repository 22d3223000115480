"""Clients whose shares are wrong: no sum that is none, and who is at fault alone is left out."""

from dataclasses import replace

import numpy as np
import pytest
from in_memory import STAGES, Clients, plain_sum, random_vectors, run

from bfl.errors import ProtocolError, TooFewClientsError, UnusableClientsError
from bfl.federation.secure_aggregation.masking import combine, split, threshold
from bfl.federation.secure_aggregation.messages import Unmasking
from bfl.federation.secure_aggregation.server import SecureSum

WRONG = bytes(16)
KINDS = ("own_masks", "masking")


class Holders(Clients):
    """Clients of which some give wrong shares of one kind at the end."""

    def __init__(self, vectors, liars=(), kind="own_masks"):
        super().__init__(vectors)
        self.liars, self.kind = liars, kind

    def unmask(self, client, message):
        sent = super().unmask(client, message)
        if client not in self.liars:
            return sent
        return replace(sent, **{self.kind: [WRONG] * len(getattr(sent, self.kind))})


class Dealer(Clients):
    """Clients of which one deals its shares wrongly: to so many of its neighbours."""

    def __init__(self, vectors, dealer, change, to=99):
        super().__init__(vectors)
        self.dealer, self.change, self.to = dealer, change, to

    def keys(self, client, message):
        keys = super().keys(client, message)
        digest = self.change == "digest" and client == self.dealer
        return replace(keys, own_mask=bytes(32)) if digest else keys

    def shares(self, client, message):
        sent = super().shares(client, message)
        if client != self.dealer or self.change == "digest":
            return sent
        name, wrong = ("boxes", b"x") if self.change == "boxes" else ("own_masks", bytes(32))
        found = getattr(sent, name)
        to = min(self.to, len(found))
        return replace(sent, **{name: [wrong] * to + found[to:]})


def gone_before_its_vector(client: int):
    return lambda now, other: other == client and STAGES.index(now) >= STAGES.index("masked")


@pytest.mark.parametrize("kind", KINDS)
def test_who_gives_another_share_than_it_was_dealt_is_passed_over(kind):
    vectors = random_vectors(7)  # 5 of 7 are needed
    *ids, last = vectors
    for liar in ids:
        clients = Holders(vectors, [liar], kind)
        total = run(clients, gone_before_its_vector(last), ignore=True)
        np.testing.assert_array_equal(total.total(), plain_sum(vectors, ids))


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_shares_of_many_are_an_error_that_accuses_none_of_whom_they_are_shares(kind):
    vectors = random_vectors(7)
    *ids, last = vectors
    with pytest.raises(TooFewClientsError, match="4 shares of client"):
        run(Holders(vectors, ids[:2], kind), gone_before_its_vector(last), ignore=True).total()


def test_a_wrong_share_is_known_as_it_comes():
    with pytest.raises(ProtocolError, match="of client 4 is not the one it was dealt"):
        run(Holders(random_vectors(4), [4]))


@pytest.mark.parametrize("change", ["boxes", "digests", "digest"])
@pytest.mark.parametrize("leaves", [False, True])
def test_who_deals_no_shares_is_named_and_the_next_attempt_ends_without_it(change, leaves):
    vectors = random_vectors(5)  # 4 of 5 are needed

    def gone(stage, client):
        return leaves and client == 4 and stage == "unmask"

    with pytest.raises(UnusableClientsError) as caught:
        run(Dealer(vectors, 4, change), gone, ignore=True).total()
    assert list(caught.value.reasons) == [4]
    left = {c: v for c, v in vectors.items() if c != 4}
    total = run(Clients(left), label="run/1/1").total()
    np.testing.assert_array_equal(total, plain_sum(vectors, list(left)))


@pytest.mark.parametrize("change", ["boxes", "digests"])
def test_who_deals_one_no_share_changes_nothing(change):
    vectors = random_vectors(5)
    total = run(Dealer(vectors, 4, change, to=1))
    np.testing.assert_array_equal(total.total(), plain_sum(vectors, list(vectors)))


@pytest.mark.parametrize("accusers", [1, 2, 3])
def test_false_accusations_leave_a_client_out_only_where_the_accusers_could_end_the_attempt(
    accusers,
):
    """They say that what the first client has sealed for them is none; 5 of 7 are needed."""
    vectors = random_vectors(7)
    victim, *others = vectors

    class Accusers(Clients):
        def unmask(self, client, message):
            sent = super().unmask(client, message)
            if client not in others[:accusers]:
                return sent
            place = sent.survivors.index(victim)
            kept = [k for k in range(len(sent.survivors)) if k != place]
            return replace(
                sent,
                survivors=[sent.survivors[k] for k in kept],
                own_masks=[sent.own_masks[k] for k in kept],
                unusable=[victim],
            )

    total = run(Accusers(vectors))
    if accusers < 3:
        np.testing.assert_array_equal(total.total(), plain_sum(vectors, list(vectors)))
        return
    # As many that drop out instead have the same power.
    with pytest.raises(UnusableClientsError, match="client 1: clients 4, 7, 10 were sealed no"):
        total.total()
    with pytest.raises(TooFewClientsError):
        run(Clients(vectors), lambda now, c: now == "unmask" and c in others[:3]).total()


@pytest.mark.parametrize("liars", [1, 2])
def test_nonsense_in_place_of_confirmations_counts_as_none(liars):
    vectors = random_vectors(7)
    silent = list(vectors)[:liars]

    class Nonsense(Clients):
        def confirm(self, client, message):
            sent = super().confirm(client, message)
            return replace(sent, boxes=[b"x"] * len(sent.boxes)) if client in silent else sent

    total = run(Nonsense(vectors)).total()
    np.testing.assert_array_equal(total, plain_sum(vectors, list(vectors)))


@pytest.mark.parametrize(
    "change",
    [
        lambda sent: replace(sent, own_masks=[b"abc", *sent.own_masks[1:]]),
        lambda sent: replace(sent, own_masks=sent.own_masks[1:]),
        lambda sent: replace(sent, survivors=[9999, *sent.survivors[1:]]),
        lambda sent: replace(sent, survivors=[sent.survivors[1], *sent.survivors[1:]]),
        lambda sent: replace(sent, unusable=[9999]),
        lambda sent: replace(sent, unusable=sent.survivors[1:2]),
        lambda sent: Unmasking([], [], sent.survivors, sent.own_masks, []),
    ],
)
def test_shares_of_other_secrets_than_were_asked_for_are_refused_whole(change):
    vectors = random_vectors(6)
    clients = Clients(vectors)
    total = run(clients, until="unmask")
    assert isinstance(total, SecureSum)
    for client, message in total.unmasking_requests().items():
        sent = clients.unmask(client, message)
        if client == min(vectors):
            with pytest.raises(ProtocolError):
                total.take_unmasking(client, change(sent))
        else:
            total.take_unmasking(client, sent)
    np.testing.assert_array_equal(total.total(), plain_sum(vectors, list(vectors)))


@pytest.mark.parametrize("missing", ["own_masks", "masking", "boxes"])
def test_shares_without_their_digests_are_refused(missing):
    clients = Clients(random_vectors(4))
    total = run(clients, until="shares")
    sent = clients.shares(1, total.rosters()[1])
    with pytest.raises(ProtocolError):
        total.take_shares(1, replace(sent, **{missing: getattr(sent, missing)[1:]}))


def test_shares_are_tried_until_they_give_the_secret():
    secret, needed = bytes(range(16)), threshold(31)
    shares = dict(enumerate(split(secret, needed, 31), start=1))
    for wrong in (1, needed, 31):
        assert combine({**shares, wrong: WRONG}, needed, secret.__eq__) == secret
