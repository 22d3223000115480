"""Pooled posteriors of clients, who come together, one after the other, or as sums alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bfl.aggregation.pooling.base import Array, PoolingRule, Totals
from bfl.aggregation.pooling.core import Pooled, Sums, checked_weight, epsilon_of, normalised
from bfl.errors import PosteriorError
from bfl.posteriors.posterior import Posterior

GROUP = 4
"""Clients that are held at a time when they come from an iterator: about as large as the sums.

While they are added, the next one has already come: only then it is known that they are not the
last.
"""

Client = tuple[Posterior, float, np.random.Generator | None]
"""A posterior, its weight, and its random generator for a stochastic rule."""


class Statistics(NamedTuple):
    """Sums over clients, or what one client adds to them.

    Attributes:
        gaussian: (S, D) statistics of the rule.
        point: (P,) point parameters times the weight.
    """

    gaussian: Array
    point: Array


def pool(
    rule: PoolingRule,
    posteriors: Iterable[Posterior],
    weights: Sequence[float] | npt.NDArray[np.floating],
    *,
    previous: Posterior | None = None,
    unrounded: Posterior | None = None,
    generators: Iterable[np.random.Generator] | None = None,
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
        at_once=len(fractions) if isinstance(posteriors, list | tuple) else GROUP,
    )


def pool_weighted(
    rule: PoolingRule,
    clients: Iterable[Client],
    *,
    previous: Posterior | None = None,
    unrounded: Posterior | None = None,
    at_once: int | None = None,
) -> Pooled:
    """Return the pooled posterior of clients whose number is not known and who may come slowly.

    Args:
        rule: The pooling rule.
        clients: Posteriors with their weights, taken as they are, and their random generators, for
            a stochastic rule; each is read once and let go, and one of weight 0 is not looked at.
        previous: The previous global posterior, which some rules use.
        unrounded: The same as it was pooled, in float64, which rules that ``keeps_unrounded`` use.
        at_once: How many clients are held and added together; by default ``GROUP``.

    Raises:
        PosteriorError: There is no client, or a posterior is not valid.
        ValueError: A weight is negative or not finite, or a stochastic rule has no generators.
    """
    coming = (client for client in clients if checked_weight(client[1]))
    following = next(coming, None)
    if following is None:
        raise PosteriorError("nothing to pool: no posterior with a positive weight was added")
    sums = Sums(rule, following[0], previous, unrounded)
    while True:
        together = chain([following], islice(coming, (at_once or GROUP) - 1))
        group = [sums.member(*client) for client in together]
        following = next(coming, None)
        if following is None:
            return sums.pooled(group)
        sums.add(group)
        del group  # before the next one comes


def client_statistics(
    rule: PoolingRule, posterior: Posterior, weight: float, previous: Posterior
) -> Statistics:
    """Return what a client adds to a rule's sums; zeros for a weight of 0.

    For who adds them up elsewhere, and may know nothing but the sums.

    Args:
        rule: The pooling rule, which is not stochastic.
        posterior: The client's posterior.
        weight: Its weight, as it is.
        previous: The previous global posterior, which gives the reference.

    Raises:
        PosteriorError: The posterior is not valid or has another size.
        ValueError: The weight is negative or not finite, or the rule draws random numbers.
    """
    sums = Sums(rule, previous, previous)
    members = []
    if checked_weight(weight):
        posterior.check(like=previous)
        members = [sums.member(posterior, weight, None)._replace(sound=True)]
    return Statistics(sums.add(members), sums.point)


def pooled_statistics(
    rule: PoolingRule,
    statistics: Statistics,
    weights: Sequence[float],
    previous: Posterior,
    unrounded: Posterior | None = None,
) -> Pooled:
    """Return the pooled posterior of summed statistics, in the types of the previous one.

    Args:
        rule: The pooling rule.
        statistics: The sums over the clients; they may be changed in place.
        weights: The weights with which the clients' statistics were made.
        previous: The previous global posterior.
        unrounded: The same as it was pooled, in float64, for a rule that ``keeps_unrounded``.

    Raises:
        PosteriorError: No weight is positive, or the rule gives what is no posterior.
    """
    sums = Sums(rule, previous, previous, unrounded)
    sums.statistics, sums.point = statistics
    for weight in filter(checked_weight, weights):
        sums.totals += Totals(1, weight, weight, rule.mass(weight), epsilon_of(previous))
    return sums.pooled([])


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
