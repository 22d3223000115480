"""The pooled posterior of clients, who come together or one after the other.

It is, bit for bit, that of an ``Accumulator`` to which they are added one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

import numpy as np
import numpy.typing as npt

from bfl.aggregation.pooling.base import PoolingRule
from bfl.aggregation.pooling.frame import Frame
from bfl.aggregation.pooling.sums import Pooled, Sums, pooled
from bfl.aggregation.pooling.weights import checked_weight, normalised
from bfl.errors import PosteriorError
from bfl.posteriors.posterior import Posterior

GROUP = 4
"""Clients that ``pool`` holds at a time when they come from an iterator.

With one at a time most of the traffic would be the sums'. Four are about as large as the sums are.
While they are added, the next one has already come: only then it is known that they are not the
last.
"""

Client = tuple[Posterior, float, np.random.Generator | None]


def pool(
    rule: PoolingRule,
    posteriors: Iterable[Posterior],
    weights: Sequence[float] | npt.NDArray[np.floating],
    *,
    previous: Posterior | None = None,
    unrounded: Posterior | None = None,
    generators: Iterable[np.random.Generator] | None = None,
    threads: int = 1,
) -> Pooled:
    """Return the pooled posterior of K clients.

    Args:
        rule: The pooling rule.
        posteriors: K posteriors; each is read once. Those of a list or a tuple are read all
            together, a block at a time, and need no memory but the result's; those of any other
            iterable are taken and let go by fours, so memory does not grow with K.
        weights: K weights in any scale; they are normalised to sum to 1 first.
        previous: The previous global posterior, which some rules use.
        unrounded: The same as it was pooled, in float64, which rules that ``keeps_unrounded`` use.
        generators: K random generators, one per client, for a stochastic rule.
        threads: The number of threads to work with; the bits do not depend on it. One unless the
            caller knows how many CPUs are free.

    Raises:
        PosteriorError: No client has a positive weight, or a posterior is not valid.
        ValueError: A weight is negative or not finite, a stochastic rule has no generators, or
            there are not as many posteriors or generators as weights.
    """
    fractions = normalised(weights)
    return pool_weighted(
        rule,
        _clients(fractions, posteriors, generators),
        previous=previous,
        unrounded=unrounded,
        threads=threads,
        at_once=len(fractions) if isinstance(posteriors, list | tuple) else GROUP,
    )


def pool_weighted(
    rule: PoolingRule,
    clients: Iterable[Client],
    *,
    previous: Posterior | None = None,
    unrounded: Posterior | None = None,
    threads: int = 1,
    at_once: int = GROUP,
) -> Pooled:
    """Return the pooled posterior of clients whose number is not known and who may come slowly.

    Args:
        rule: The pooling rule.
        clients: Posteriors with their weights, taken as they are, and their random generators, for
            a stochastic rule; each is read once and let go, and one of weight 0 is not looked at.
        previous: The previous global posterior, which some rules use.
        unrounded: The same as it was pooled, in float64, which rules that ``keeps_unrounded`` use.
        threads: The number of threads to work with; the bits do not depend on it.
        at_once: How many clients are held and added together.

    Raises:
        PosteriorError: There is no client, or a posterior is not valid.
        ValueError: A weight is negative or not finite, or a stochastic rule has no generators.
    """
    coming = (client for client in clients if checked_weight(client[1]))
    following = next(coming, None)
    if following is None:
        raise PosteriorError("nothing to pool: no posterior with a positive weight was added")
    frame, sums = Frame.like(rule, following[0], previous, threads, unrounded), None
    while True:
        together = chain([following], islice(coming, at_once - 1))
        group = [frame.member(*client) for client in together]
        following = next(coming, None)
        if following is None:
            return pooled(frame, sums, group)
        if sums is None:
            frame = frame.kept()
            sums = Sums.zero(frame)
        sums.add(frame, group)
        del group  # before the next one comes


def _clients(
    fractions: Sequence[float],
    posteriors: Iterable[Posterior],
    generators: Iterable[np.random.Generator] | None,
) -> Iterator[Client]:
    """Yield the clients that have a weight; at the end, there must be as many of everything."""
    sources = iter(posteriors)
    drawers = None if generators is None else iter(generators)
    for index, weight in enumerate(fractions):
        posterior = next(sources, None)
        generator = None if drawers is None else next(drawers, None)
        if posterior is None or (drawers is not None and generator is None):
            what = "posteriors" if posterior is None else "generators"
            raise ValueError(f"got {index} {what} for {len(fractions)} weights")
        if weight > 0:
            yield posterior, weight, generator
    if next(sources, None) is not None:
        raise ValueError(f"got more posteriors than the {len(fractions)} weights")
