"""Where a client's optimizer begins."""

import numpy as np
import pytest

from bfl.federation.parts import Trained
from bfl.learning.starts import starts
from bfl.posteriors import Posterior


def posterior(value):
    return Posterior(np.full(2, value), np.full(2, value), np.full(1, value))


RECEIVED, INITIAL, SENT = (posterior(value) for value in (1.0, 2.0, 3.0))
TRAINED = Trained(RECEIVED, SENT, {}, 1, 1, 0.1, np.ones(1, bool))


def gaussians(begun):
    assert begun.point[0] == RECEIVED.point[0]  # points have no prior
    assert (begun.mean == begun.variance).all()
    return begun.mean[0]


@pytest.mark.parametrize("name", starts.names())
def test_a_start_is_a_posterior_like_the_received_one_and_says_if_it_is_another(name):
    rng = np.random.default_rng(0)
    received, initial = (
        Posterior(*(rng.uniform(0.5, 2.0, size).astype(np.float32) for size in (4, 4, 3)))
        for _ in range(2)
    )
    before = received.digest()
    start = starts.create(name)
    begun = start.begin(start.begin_client(received), received, lambda: initial)
    begun.check(like=received)
    assert begun.mean.dtype == begun.variance.dtype == begun.point.dtype == np.float32
    assert received.digest() == before
    assert ("start-elsewhere" in start.has()) == (begun.digest() != before)


def test_a_client_begins_with_the_initial_network_until_it_has_been_pooled():
    start = starts.create("initial-network")
    state = start.begin_client(RECEIVED)
    assert gaussians(start.begin(state, RECEIVED, lambda: INITIAL)) == 2.0
    sent, kept = start.conclude(state, TRAINED)
    assert not sent
    # An update that was lost leaves the state as it was.
    assert gaussians(start.begin(state, RECEIVED, lambda: INITIAL)) == 2.0
    state = start.commit(kept, 0.1)
    assert gaussians(start.begin(state, RECEIVED, lambda: INITIAL)) == 1.0


@pytest.mark.parametrize(("name", "afterwards"), [("mean", 2.0), ("mean-own-variances", 3.0)])
def test_the_mean_with_fresh_variances_or_those_that_were_pooled_last(name, afterwards):
    start = starts.create(name)
    assert bool(start.state_name) == (name == "mean-own-variances")
    state = start.begin_client(RECEIVED)
    assert start.begin(state, RECEIVED, lambda: INITIAL).variance[0] == 2.0
    sent, kept = start.conclude(state, TRAINED)
    assert not sent
    begun = start.begin(start.commit(kept, 1.0), RECEIVED, lambda: INITIAL)
    assert (begun.mean[0], begun.variance[0], begun.point[0]) == (1.0, afterwards, 1.0)
