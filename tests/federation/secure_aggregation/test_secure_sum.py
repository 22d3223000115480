"""The protocol: its sum, clients that drop out, servers that lie, and what a vector gives away."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from in_memory import STAGES, TOLD, Clients, plain_sum, random_vectors, run, stages
from scipy.stats import chisquare

from bfl.errors import ProtocolError, TooFewClientsError
from bfl.federation.secure_aggregation import client as half
from bfl.federation.secure_aggregation import masking
from bfl.federation.secure_aggregation.masking import neighbours_of, threshold
from bfl.federation.secure_aggregation.messages import (
    Confirmations,
    Delivery,
    PublicKeys,
    Survivors,
)
from bfl.federation.secure_aggregation.server import SecureSum

LABEL = "run/1/0"


@pytest.fixture
def few_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more than 7 clients, each has 6 neighbours, and 5 of the 7 are needed."""
    monkeypatch.setattr(masking, "NEIGHBOURS", 6)


@pytest.mark.usefixtures("few_neighbours")
@pytest.mark.parametrize("count", [3, 5, 12])
def test_the_sum_is_that_of_the_vectors_bit_for_bit_under_new_masks(count):
    vectors, sent = random_vectors(count, size=300_000 if count == 3 else 40), []
    for attempt in range(2):
        clients = Clients(vectors)
        total = run(clients, label=f"run/1/{attempt}")
        np.testing.assert_array_equal(total.total(), plain_sum(vectors, list(vectors)))
        sent.append(clients.sent)
    for client, vector in vectors.items():  # and none of them has travelled as it is
        for one, other in ((sent[0][client], vector), (sent[0][client], sent[1][client])):
            assert not np.any(one[:40] == other[:40])


@pytest.mark.usefixtures("few_neighbours")
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("count", [7, 12])
def test_who_drops_out_at_a_stage_is_left_out_and_no_more(stage, count):
    vectors = random_vectors(count)
    lost = list(vectors)[2:4]

    def gone(now, client):
        return client in lost and STAGES.index(now) >= STAGES.index(stage)

    total = run(Clients(vectors), gone)
    heard = stage in ("confirm", "unmask")  # their vectors have come
    assert total.survivors == [c for c in vectors if heard or c not in lost]
    np.testing.assert_array_equal(total.total(), plain_sum(vectors, total.survivors))


@pytest.mark.parametrize("stage", STAGES)
def test_below_the_threshold_nothing_is_unmasked(stage):
    vectors = random_vectors(6)  # 4 of 6 are needed
    lost = list(vectors)[: 4 if stage == "keys" else 3]

    def gone(now, client):
        return client in lost and STAGES.index(now) >= STAGES.index(stage)

    with pytest.raises(TooFewClientsError):
        run(Clients(vectors), gone, refusals=[]).total()


@pytest.mark.parametrize("alone", [False, True])
def test_no_client_gives_both_secrets_of_another(alone):
    """The server says to some that a client is left, and to others that it is not.

    Of those who were told the same there are too few, whether all are heard or these alone.
    """
    vectors = random_vectors(7)
    victim, *others = vectors
    clients = Clients(vectors)
    total = run(clients, until="confirm")
    told = {c: list(vectors) if c in others[:3] else others for c in others}
    confirmations = {c: clients.confirm(c, Survivors(LABEL, told[c])) for c in others}
    for c in others:
        mail = {
            other: box
            for other, sent in confirmations.items()
            if other != c and (told[other] == told[c] or not alone)
            for to, box in zip(sent.clients, sent.boxes, strict=True)
            if to == c
        }
        with pytest.raises(ProtocolError, match="confirm the same; needed are 5"):
            clients.unmask(c, Confirmations(LABEL, [*mail], [*mail.values()]))
    assert victim in total.survivors


def test_each_step_is_made_once_and_in_order():
    vectors = random_vectors(4)
    clients = Clients(vectors)
    total = run(clients, until="confirm")
    client = next(iter(vectors))
    delivery = total.deliveries()[client]
    with pytest.raises(ProtocolError, match="has masked in run/1/0"):
        clients.masked(client, delivery)  # a second vector under the same masks
    with pytest.raises(ProtocolError, match="has masked"):
        half.unmask(clients.states[client], Confirmations(LABEL, [], []))
    clients.confirm(client, Survivors(LABEL, list(vectors)))
    with pytest.raises(ProtocolError, match="has confirmed"):
        clients.confirm(client, Survivors(LABEL, list(vectors)[:3]))


@pytest.mark.parametrize("stage", ["shares", "masked", "confirm", "unmask"])
def test_a_message_of_another_attempt_is_refused_and_changes_nothing(stage):
    """As when an attempt was given up, and what it had sent comes late."""
    vectors = random_vectors(4)
    late = Clients(vectors)
    earlier = run(late, label="run/1/earlier", until=stage)
    message = {
        "shares": earlier.rosters,
        "masked": earlier.deliveries,
        "confirm": earlier.confirmation_requests,
        "unmask": earlier.unmasking_requests,
    }[stage]()[1]
    clients = Clients(vectors)
    total = run(clients, label=LABEL, until=stage)
    before = clients.states[1]
    with pytest.raises(ProtocolError, match="is in run/1/0, and the message is of run/1/earlier"):
        getattr(clients, stage)(1, message)
    clients.states[1] = before  # in memory a client that unmasks forgets all it has kept
    for messages, answer, take in stages(total, clients, stage).values():
        for client, sent in messages().items():
            take(client, answer(client, sent))
    np.testing.assert_array_equal(total.total(), plain_sum(vectors, list(vectors)))


def test_a_client_masks_with_enough_neighbours_or_not_at_all():
    vectors = random_vectors(5)
    clients = Clients(vectors)
    total = run(clients, until="masked")
    client, *others = vectors
    message = total.deliveries()[client]
    for kept in (0, 2):
        lists = (getattr(message, name)[:kept] for name in ("boxes", "own_masks", "masking"))
        few = Delivery(LABEL, sorted([client, *others[:kept]]), others[:kept], *lists)
        with pytest.raises(ProtocolError, match=f"{kept + 1} of 5 .* have sent shares"):
            clients.masked(client, few)


def test_a_client_whose_keys_are_none_is_left_out_by_the_server():
    clients = Clients(random_vectors(4))
    total = run(clients, until="shares")
    good, digest = b"x" * 32, bytes(32)
    for keys in (PublicKeys(bytes(32), good, b"", digest), PublicKeys(good, b"short", b"", digest)):
        with pytest.raises(ProtocolError, match="public key is none"):
            total.take_keys(2, keys)
    with pytest.raises(ProtocolError, match="digest of the own mask's secret is none"):
        total.take_keys(2, PublicKeys(good, b"y" * 32, b"", b"short"))


@pytest.mark.parametrize("copied", ["its own", "encryption", "masking"])
def test_a_client_that_sends_a_key_twice_is_left_out_and_the_round_ends_without_it(copied):
    class Copied(Clients):
        def keys(self, client, message):
            keys = super().keys(client, message)
            if client != liar:
                self.first = keys
                return keys
            key = keys.encryption if copied == "its own" else getattr(self.first, copied)
            return replace(keys, masking=key)

        def shares(self, client, message):
            assert client != liar
            return super().shares(client, message)

    vectors = random_vectors(5)
    *_, liar = order = sorted(vectors)
    clients = Copied(vectors)
    total = SecureSum(LABEL, vectors, 40, TOLD)
    for client in order:
        expected = pytest.raises(ProtocolError) if client == liar else nullcontext()
        with expected:
            total.take_keys(client, clients.keys(client, total.invitations()[client]))
    for messages, answer, take in stages(total, clients, "shares").values():
        for client, message in messages().items():
            take(client, answer(client, message))
    assert total.survivors == order[:-1]
    np.testing.assert_array_equal(total.total(), plain_sum(vectors, order[:-1]))


@pytest.mark.parametrize(
    "change",
    [
        lambda sent: Confirmations(LABEL, [9999], [b"x"]),
        lambda sent: Confirmations(LABEL, sent.clients * 2, sent.boxes * 2),
        lambda sent: Confirmations(LABEL, sent.clients[:-1], sent.boxes[:-1]),
        lambda sent: Confirmations(LABEL, sent.clients, sent.boxes[:-1]),
        lambda sent: replace(sent, label="run/1/1"),
    ],
)
def test_confirmations_for_others_are_refused_and_the_round_ends_without_them(change):
    vectors = random_vectors(6)
    clients = Clients(vectors)
    total = run(clients, until="confirm")
    liar, *others = vectors
    for client, message in total.confirmation_requests().items():
        sent = clients.confirm(client, message)
        expected = pytest.raises(ProtocolError) if client == liar else nullcontext()
        with expected:
            total.take_confirmations(client, change(sent) if client == liar else sent)
    asked = total.unmasking_requests()
    assert set(asked) <= set(vectors)
    for client in others:
        assert liar not in asked[client].clients
        total.take_unmasking(client, clients.unmask(client, asked[client]))
    np.testing.assert_array_equal(total.total(), plain_sum(vectors, list(vectors)))


@pytest.mark.parametrize(
    "change",
    [
        lambda r: replace(r, clients=r.clients[:-1]),
        lambda r: replace(r, neighbours=r.neighbours[:-1]),
        lambda r: replace(r, masking=[r.masking[0]] * len(r.masking)),
        lambda r: replace(r, clients=r.clients[:2]),
    ],
)
def test_a_list_of_clients_that_is_none_is_refused(change):
    clients = Clients(random_vectors(4))
    total = run(clients, until="shares")
    with pytest.raises(ProtocolError):
        clients.shares(1, change(total.rosters()[1]))


def test_a_key_of_zeros_agrees_on_nothing_secret():
    clients = Clients(random_vectors(4))
    roster = run(clients, until="shares").rosters()[1]
    clients.shares(1, replace(roster, masking=[bytes(32), *roster.masking[1:]]))
    others, empty = roster.neighbours, [b""] * len(roster.neighbours)
    with pytest.raises(ProtocolError, match="public key is none"):
        clients.masked(1, Delivery(LABEL, [1, *others], others, empty, empty, empty))


def chance_of_uniform(numbers: np.ndarray) -> float:
    """Return how probable it is that numbers of the ring are as uneven as these, by their bytes."""
    bytes_, found = np.frombuffer(numbers.tobytes(), np.uint8), []
    for place in range(8):
        counts = np.bincount(bytes_[place::8], minlength=256)
        found.append(chisquare(counts).pvalue)
    return min(1.0, 8 * min(found))


def test_who_knows_all_other_updates_learns_nothing_of_one_from_what_it_sent():
    """And finds the client whose mask was left out, so that this test would see it."""
    # Updates as they are: small numbers, whose high bytes are all alike.
    size = 20_000
    generator = np.random.default_rng(5)
    vectors = {
        k: generator.integers(-(2**40), 2**40, size).astype(np.int64).view(np.uint64)
        for k in range(4)
    }
    clients = Clients(vectors)
    run(clients)
    for client, vector in vectors.items():
        others = plain_sum(vectors, [c for c in vectors if c != client])
        # What was sent; what is left of it if the guess of the update is right; and with all
        # that the others have added.
        for guess in (np.zeros_like(vector), vector, others):
            assert chance_of_uniform(clients.sent[client] - guess) > 1e-6
    assert chance_of_uniform(vectors[0]) < 1e-9

    class Careless(Clients):
        def masked(self, client, message):
            vector = super().masked(client, message)
            if client == 2:
                vector[...] = self.vectors[2]
            return vector

    careless = Careless(vectors)
    run(careless)
    found = [c for c in vectors if chance_of_uniform(careless.sent[c]) < 1e-9]
    assert found == [2]


@pytest.mark.usefixtures("few_neighbours")
def test_neighbours_are_mutual_and_as_many_for_all():
    ids = list(range(0, 80, 2))
    near = {c: neighbours_of(c, ids, "run/3/0") for c in ids}
    assert {len(n) for n in near.values()} == {6}
    assert all(c in near[other] for c in ids for other in near[c])
    assert near != {c: neighbours_of(c, ids, "run/4/0") for c in ids}
    assert neighbours_of(ids[0], ids[:7], "run/3/0") == ids[1:7]


@pytest.mark.parametrize(("members", "needed"), [(2, 2), (3, 2), (4, 3), (6, 4), (10, 7), (31, 21)])
def test_more_than_half_are_always_needed(members, needed, monkeypatch):
    assert threshold(members) == needed
    monkeypatch.setattr(masking, "THRESHOLD", 0.01)
    assert threshold(members) == members // 2 + 1
