"""How clients' posteriors travel: what every exchange keeps of them, and what it refuses."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bfl.errors import PosteriorError
from bfl.federation.exchanges import Direct, Exchange, exchanges
from bfl.federation.parts import Arrays
from bfl.federation.wire import reply_content, vectors_from_arrays, vectors_to_arrays
from bfl.posteriors import Posterior
from strategies.updates import RefusedUpdateError, read_update

SEEN = [c.name for c in exchanges.classes() if c().secure_sums is None]
RECEIVED = Posterior(
    np.linspace(-2, 2, 40, dtype=np.float32),
    np.geomspace(1e-4, 1, 40, dtype=np.float32),
    np.ones(4, np.float32),
)


def an_update(gaussians: int = 40) -> Posterior:
    shift = np.linspace(-0.1, 0.1, 40, dtype=np.float32)[:gaussians]
    variance = np.geomspace(1e-5, 0.5, 40).astype(np.float32)[:gaussians]
    return Posterior(RECEIVED.mean[:gaussians] + shift, variance, np.arange(4, dtype=np.float32))


def reading(exchange: Exchange, vectors: Arrays) -> Posterior:
    """Return what the server makes of vectors that a client has sent."""
    reply: Any = SimpleNamespace(content=reply_content(vectors, {"num-examples": 3}))
    return read_update(reply, 0, RECEIVED, unpack=exchange.unpack).posterior


@pytest.mark.parametrize("name", SEEN)
@pytest.mark.parametrize("gaussians", [40, 0])
def test_what_is_unpacked_is_a_posterior_near_the_one_packed(name: str, gaussians: int) -> None:
    """Also of a network of points alone."""
    exchange, update = exchanges.create(name), an_update(gaussians)
    sent = Posterior(RECEIVED.mean[:gaussians], RECEIVED.variance[:gaussians], RECEIVED.point)
    packed = exchange.pack(update, sent)
    travelled = vectors_from_arrays(vectors_to_arrays(packed))
    found = exchange.unpack(travelled, sent)
    found.check(like=sent)
    for name_, expected in (("mean", 0.01), ("variance", 0.01), ("point", 1e-6)):
        mine, its = getattr(found, name_), getattr(update, name_)
        assert mine.dtype == its.dtype
        np.testing.assert_allclose(mine, its, rtol=expected, atol=1e-3 * (name_ == "mean"))
    # The client reckons with what the server will read: packing again loses nothing more.
    again = exchange.unpack(exchange.pack(found, sent), sent)
    np.testing.assert_allclose(again.mean, found.mean, atol=1e-6)


@pytest.mark.parametrize("name", SEEN)
def test_the_server_reads_what_a_client_has_packed_and_refuses_what_it_has_not(name: str) -> None:
    exchange, update = exchanges.create(name), an_update()
    packed = exchange.pack(update, RECEIVED)
    expected = exchange.unpack(packed, RECEIVED)
    np.testing.assert_array_equal(reading(exchange, packed).mean, expected.mean)
    without = {key: vector for key, vector in packed.items() if key != "point"}
    for wrong in ({}, without, {**packed, "point": np.full(4, np.nan, np.float32)}):
        with pytest.raises(RefusedUpdateError):
            reading(exchange, wrong)


def test_a_direct_exchange_hands_on_the_posterior_and_names_what_is_missing() -> None:
    update = an_update()
    assert Direct().pack(update, RECEIVED)["mean"] is update.mean
    with pytest.raises(PosteriorError, match="the arrays are mean; expected mean, variance, point"):
        Direct().unpack({"mean": update.mean}, RECEIVED)
