"""A chain of parts on an update's way out, as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from bfl.federation.outgoing.base import Outgoing
from bfl.federation.parts import Counts
from bfl.federation.privacy.difference import Array, difference, moved
from bfl.federation.privacy.normals import Normals
from bfl.posteriors import Posterior

CLIPPED = "clipped-updates"
"""The property of a part that bounds the length of differences."""

ROUNDINGS = 8
"""How often a difference that rounding has led out of a bound is made a little shorter."""


def order_problem(chain: Sequence[Outgoing]) -> str:
    """Return what is wrong with the order of a chain, for people; empty: nothing."""
    given = "+".join(part.name for part in chain)
    for before, after in pairwise(chain):
        if after.stage < before.stage:
            ordered = "+".join(p.name for p in sorted(chain, key=lambda p: p.stage))
            return (
                f"outgoing is '{given}', where '{before.name}' comes before '{after.name}'; "
                f"allowed: '{ordered}'"
            )
    return ""


def length_problem(chain: Sequence[Outgoing]) -> str:
    """Return which part may undo the bound that another rests on, for people; empty: none does.

    A part that needs clipped updates takes them as long as the last part before it that clips
    leaves them. Where clients add the noise, that is what stands between the two; where the server
    does, all else that clients do after clipping.
    """
    active = [part for part in chain if part.active]
    for place, part in enumerate(active):
        if CLIPPED not in part.requires():
            continue
        clips = [i for i, before in enumerate(active[:place]) if CLIPPED in before.has()]
        end = place if part.draws else len(active)
        for between in active[clips[-1] + 1 : end] if clips else ():
            if between is not part and between.lengthens:
                return (
                    f"outgoing is '{'+'.join(p.name for p in chain)}', where '{between.name}' "
                    f"stands behind '{active[clips[-1]].name}' and does not say that it makes no "
                    f"difference longer (lengthens = False), so that '{part.name}' could not know "
                    f"how long one is; allowed: '{between.name}' before "
                    f"'{active[clips[-1]].name}', or a chain without it"
                )
    return ""


def is_private(chain: Sequence[Outgoing]) -> bool:
    """Return whether clients send nothing that they have measured; see ``Outgoing.private``."""
    return any(part.private for part in chain)


def sent(
    chain: Sequence[Outgoing], learned: Posterior, received: Posterior, normals: Normals
) -> Posterior:
    """Return what a client sends of what it has learned.

    What no part changes is what was learned, bit for bit. Noise is added in float64, before the one
    rounding to the type of what was received. Without noise, the rounding is kept from leading out
    of what the chain gives: where that takes more than a percent of it, nothing new is sent.

    Args:
        chain: The parts, in their order.
        learned: What training has given.
        received: The global posterior that the client was sent.
        normals: Where random numbers are from.
    """
    if not any(part.active for part in chain):
        return learned
    before = difference(received, learned)
    if is_private(chain) and not np.isfinite(before).all():
        # That training has diverged says something of the data, too.
        before = np.zeros_like(before)
        learned = received
    after = _changed(chain, before, normals)
    if after is before:
        return learned
    rounded = moved(received, after)
    if any(part.draws for part in chain):
        return rounded
    for number in range(ROUNDINGS):
        there = difference(received, rounded)
        if all(part.holds(there) for part in chain if part.active):
            return rounded
        after = after * (1.0 - 2.0 ** (2 * number - 20))
        rounded = moved(received, after)
    return received


def noised_pool(
    chain: Sequence[Outgoing],
    pooled: Posterior,
    previous: Posterior,
    counts: Counts,
    normals: Normals,
) -> Posterior:
    """Return what the server makes of the pool: that very posterior if no part changes it.

    Args:
        chain: The parts, in their order.
        pooled: The pooled posterior.
        previous: The posterior before the round.
        counts: How many clients were asked, and have been pooled.
        normals: Where random numbers are from.
    """
    if not any(part.active for part in chain):
        return pooled
    before = after = difference(previous, pooled)
    for part in chain:
        after = part.change_pool(after, counts, normals) if part.active else after
    return pooled if after is before else moved(previous, after)


def _changed(chain: Sequence[Outgoing], before: Array, normals: Normals) -> Array:
    after = before
    for part in chain:
        after = part.change(after, normals) if part.active else after
    return after
