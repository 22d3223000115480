"""Clients whose shares at unmasking are wrong: no sum that is none, without an error."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from in_memory import ALL, STAGES, Clients, plain_sum, random_vectors, run

from bfl.federation.secure_aggregation.errors import ProtocolError
from bfl.federation.secure_aggregation.messages import Unmasking
from bfl.federation.secure_aggregation.server import SecureSum
from bfl.federation.secure_aggregation.shares import combined, split

WRONG = bytes(16)


class Liars(Clients):
    """Clients of which some send wrong shares of one kind, and one a digest of another secret."""

    def __init__(self, vectors, liars=(), kind="own_masks", digest_of=None):
        super().__init__(vectors)
        self.liars, self.kind, self.digest_of = liars, kind, digest_of

    def keys(self, client, message):
        keys = super().keys(client, message)
        return replace(keys, own_mask=bytes(32)) if client == self.digest_of else keys

    def unmask(self, client, message):
        sent = super().unmask(client, message)
        if client not in self.liars:
            return sent
        return replace(sent, **{self.kind: [WRONG] * len(getattr(sent, self.kind))})


def gone_before_its_vector(client: int):
    return lambda now, other: other == client and STAGES.index(now) >= STAGES.index("masked")


@pytest.mark.parametrize("kind", ["own_masks", "masking"])
def test_one_wrong_share_is_passed_over_where_there_are_enough_others(kind):
    vectors = random_vectors(7)  # 5 of 7 are needed
    *ids, last = vectors
    for liar in ids:
        total = run(Liars(vectors, [liar], kind), gone_before_its_vector(last))
        np.testing.assert_array_equal(total.total(), plain_sum(vectors, ids))


@pytest.mark.parametrize("kind", ["own_masks", "masking"])
def test_wrong_shares_that_cannot_be_passed_over_are_an_error(kind):
    vectors = random_vectors(7)
    *ids, last = vectors
    with pytest.raises(ProtocolError, match="do not give the secret that they are of"):
        run(Liars(vectors, ids[:2], kind), gone_before_its_vector(last)).total()


def test_one_wrong_share_is_an_error_where_there_are_no_others():
    vectors = random_vectors(3)  # 2 of 3 are needed, and 2 answer

    def gone(now, client):
        return (now, client) == ("unmask", max(vectors))

    with pytest.raises(ProtocolError, match="client 1: shares do not give"):
        run(Liars(vectors, [min(vectors)]), gone).total()


def test_a_digest_of_another_secret_is_an_error():
    vectors = random_vectors(5)
    with pytest.raises(ProtocolError, match="client 4: shares do not give"):
        run(Liars(vectors, digest_of=4)).total()


@pytest.mark.parametrize(
    "change",
    [
        lambda sent: replace(sent, own_masks=[b"abc", *sent.own_masks[1:]]),
        lambda sent: replace(sent, own_masks=sent.own_masks[1:]),
        lambda sent: replace(sent, survivors=[9999, *sent.survivors[1:]]),
        lambda sent: replace(sent, survivors=[sent.survivors[1], *sent.survivors[1:]]),
        lambda sent: Unmasking([], [], sent.survivors, sent.own_masks),
    ],
)
def test_shares_of_other_secrets_than_were_asked_for_are_refused_whole(change):
    vectors = random_vectors(6)
    clients = Clients(vectors)
    total = run(clients, until="unmask")
    assert isinstance(total, SecureSum)
    for client, message in total.asked_to_unmask().items():
        sent = clients.unmask(client, message)
        if client == min(vectors):
            with pytest.raises(ProtocolError, match="shares are not those"):
                total.take_unmasking(client, change(sent))
        else:
            total.take_unmasking(client, sent)
    np.testing.assert_array_equal(total.total(), plain_sum(vectors, list(vectors)))


def test_shares_are_tried_until_they_give_the_secret():
    secret, threshold = bytes(range(16)), ALL.threshold(31)
    shares = dict(enumerate(split(secret, threshold, 31), start=1))
    for wrong in (1, threshold, 31):
        assert combined({**shares, wrong: WRONG}, threshold, secret.__eq__) == secret
