"""Clients to pool."""

from collections.abc import Callable

import numpy as np
import pytest

from bfl.posteriors import Posterior

MakeClients = Callable[..., list[Posterior]]


@pytest.fixture(scope="session")
def make_clients() -> MakeClients:
    """Return a function that makes clients, read-only: nothing may change what it is given."""

    def make(
        seed: int,
        count: int,
        size: int = 37,
        scales: tuple[float, float] = (1e-8, 1e3),
        dtype: type = np.float64,
    ) -> list[Posterior]:
        rng = np.random.default_rng(seed)
        low, high = np.log(scales)
        made = []
        for k in range(count):
            vectors = (
                # No two clients' means nearly coincide: the rounding of a disagreement is relative
                # to the distance from the reference, and has a test of its own.
                rng.uniform(-0.4, 0.4, size) + k - count / 2,
                np.exp(2 * rng.uniform(low, high, size)),
                rng.normal(size=5),
            )
            posterior = Posterior(*(vector.astype(dtype) for vector in vectors))
            for vector in (posterior.mean, posterior.variance, posterior.point):
                vector.setflags(write=False)
            made.append(posterior)
        return made

    return make
