"""Masking of statistics in the ring: their range and encoding, neighbours, shares, masks.

A number x becomes round(x · 2ᵉ) modulo 2⁶⁴, for an exponent e that all clients share. Sums wrap
around and are taken for numbers from −2⁶³ to 2⁶³ − 1: right as long as the sum of the real numbers
lies within ±2⁶²⁻ᵉ, which who chooses the exponent sees to. The error of a sum over K numbers is at
most K · 2⁻ᵉ⁻¹, which is what rounding each of them makes.

Masks are streams of ChaCha20 that are added to a vector of the ring, or taken off it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Literal

import numpy as np
import numpy.typing as npt
from Crypto.Protocol.SecretSharing import Shamir
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from bfl import randomness
from bfl.aggregation.pooling import PoolingRule
from bfl.aggregation.pooling.base import Statistics, client_statistics
from bfl.errors import PosteriorError, ProtocolError
from bfl.posteriors import Posterior
from bfl.posteriors.posterior import Vector

Ring = npt.NDArray[np.uint64]
Array = npt.NDArray[np.float64]

HIGHEST = 62
"""Sums stay below 2 to this power, so that rounding cannot carry them across half of the ring."""

EXPONENTS = (-960, 960)
"""The least and the greatest exponent, for which the powers of 2 are float64 numbers."""

CHUNK = 1 << 17
"""Numbers encoded or masked at a time: a MB, which stays in the processor's cache, and all the
memory that a large model takes besides its vector."""

REACH, GREATEST_POINT = 16.0, 1e6
"""Bounds of a client's means, from those that it was sent, and of its absolute point values."""

LEAST_DEVIATION, GREATEST_DEVIATION = 5e-6, 4.0
"""The range of a client's standard deviations."""

INSIDE = 1.0 - 2.0**-30
"""Factor that keeps the rounding of a difference from the previous mean within the reach."""

NEIGHBOURS = 30
"""Number of others that a client exchanges masks with; all, if there are no more."""

THRESHOLD = 2 / 3
"""Share of a client and its neighbours that takes its masks off: more than half, so that no server
gets both of a client's secrets from those whom it has told different things."""

_NONCE = bytes(16)
"""A counter from 0 and a nonce of 0: each key makes one mask in its life."""


def check_range(posterior: Posterior, previous: Posterior) -> None:
    """Raise if a posterior is outside: it could not be told apart from another in a sum."""
    deviation = np.sqrt(posterior.variance.astype(np.float64))
    shift = np.abs(posterior.mean.astype(np.float64) - previous.mean)
    for what, outside in (
        (f"means further than {REACH:g} from those sent", shift > REACH),
        (f"standard deviations below {LEAST_DEVIATION:g}", deviation < LEAST_DEVIATION),
        (f"standard deviations above {GREATEST_DEVIATION:g}", deviation > GREATEST_DEVIATION),
        (f"point parameters beyond ±{GREATEST_POINT:g}", np.abs(posterior.point) > GREATEST_POINT),
    ):
        if outside.any():
            raise PosteriorError(
                f"the posterior has {np.count_nonzero(outside)} of {outside.size} {what}, and "
                "masked sums hold no others; allowed: exchange='direct'"
            )


def clip_to_range(posterior: Posterior, previous: Posterior) -> Posterior:
    """Return a posterior with each value outside at the nearest edge, in the same types."""
    around, reach = previous.mean.astype(np.float64), REACH * INSIDE
    return Posterior(
        _clip(posterior.mean, around - reach, around + reach),
        _clip(posterior.variance, LEAST_DEVIATION**2, GREATEST_DEVIATION**2),
        _clip(posterior.point, -GREATEST_POINT, GREATEST_POINT),
    )


def _clip(values: Vector, low: Array | float, high: Array | float) -> Vector:
    """Return values (N,) between bounds, also after rounding to their type."""
    least, greatest = np.asarray(low, np.float64), np.asarray(high, np.float64)
    clipped = np.clip(values.astype(np.float64), least, greatest).astype(values.dtype)
    # What was rounded out of the bounds moves by one place.
    up, down = values.dtype.type(np.inf), values.dtype.type(-np.inf)
    clipped = np.where(clipped < least, np.nextafter(clipped, up), clipped)
    return np.where(clipped > greatest, np.nextafter(clipped, down), clipped)


def corners(previous: Posterior) -> tuple[Posterior, list[Posterior]]:
    """Return what is at the edges of the range, few numbers in place of all parameters.

    Returns:
        The extremes of the previous posterior, in all combinations (4,), and the posteriors at the
        corners of a client's range around them. A rule's statistics are monotone in a client's mean
        and variance, so those of all clients lie between those of the corners.
    """
    if not previous.size:
        return previous, []
    means, variances = previous.mean, previous.variance
    extremes = product(
        (float(means.min()), float(means.max())), (float(variances.min()), float(variances.max()))
    )
    mean, variance = np.array(list(extremes)).T
    return Posterior(mean, variance), [
        Posterior(mean + shift, np.full_like(variance, deviation**2))
        for shift in (-REACH, REACH)
        for deviation in (LEAST_DEVIATION, GREATEST_DEVIATION)
    ]


def choose_exponents(rule: PoolingRule, previous: Posterior, weights: Sequence[float]) -> list[int]:
    """Return the exponents of a rule's statistics and, last, of the point parameters.

    They are the finest with which no sum over clients within the range leaves the ring.
    """
    totals = np.zeros(rule.statistics)
    around, edges = corners(previous)
    for weight in weights if edges else ():
        statistics = [
            np.abs(client_statistics(rule, corner, weight, around).gaussian) for corner in edges
        ]
        totals += np.max(statistics, axis=(0, 2), initial=0.0)
    point = GREATEST_POINT * math.fsum(weights)
    return [exponent_for(float(total)) for total in (*totals, point)]


def encode_statistics(statistics: Statistics, exponents: Sequence[int]) -> Ring:
    """Return statistics (S, D) and (P,) as a vector (S·D + P,) of the ring.

    Args:
        exponents: S + 1 exponents, the last one of the point parameters.
    """
    rows = (*statistics.gaussian, statistics.point)
    vector, start = np.empty(sum(row.size for row in rows), np.uint64), 0
    for row, exponent in zip(rows, exponents, strict=True):
        encode(row, exponent, vector[start : start + row.size])
        start += row.size
    return vector


def decode_statistics(
    total: Ring, exponents: Sequence[int], size: int, point_size: int
) -> Statistics:
    """Return the sums of statistics in a vector that ``encode_statistics`` of clients add up to.

    Args:
        total: (S·D + P,) the sum.
        exponents: S + 1 exponents.
        size: The number D of Gaussian parameters.
        point_size: The number P of point parameters.
    """
    rows = len(exponents) - 1
    gaussian = np.empty((rows, size))
    for row, exponent in enumerate(exponents[:-1]):
        gaussian[row] = decode(total[row * size : (row + 1) * size], exponent)
    return Statistics(gaussian, decode(total[rows * size :][:point_size], exponents[-1]))


def exponent_for(greatest_sum: float) -> int:
    """Return the greatest exponent with which sums up to ± ``greatest_sum`` are within range."""
    if not (math.isfinite(greatest_sum) and greatest_sum >= 0):
        raise ValueError(f"the greatest sum is {greatest_sum}; expected a finite number from 0")
    if not greatest_sum:
        return 0
    low, high = EXPONENTS
    # The sum lies in [2^(k-1), 2^k).
    return max(low, min(high, HIGHEST - math.frexp(greatest_sum)[1]))


def encode(values: Array, exponent: int, into: Ring | None = None) -> Ring:
    """Return numbers (N,) as elements of the ring, written into a vector (N,) if it is given.

    Raises:
        OverflowError: One of them alone is beyond the range; saying how many are.
    """
    found = np.empty(values.shape, np.uint64) if into is None else into
    beyond = 0
    for start in range(0, values.size, CHUNK):
        part = slice(start, start + CHUNK)
        scaled = np.rint(np.ldexp(values[part], exponent))
        outside = ~(np.abs(scaled) <= 2.0**HIGHEST)
        if outside.any():
            beyond += int(np.count_nonzero(outside))
        else:
            found[part] = scaled.astype(np.int64).view(np.uint64)
    if beyond:
        raise OverflowError(
            f"{beyond} of {values.size} values are beyond ±{math.ldexp(1.0, HIGHEST - exponent):g}"
        )
    return found


def decode(total: Ring, exponent: int) -> Array:
    """Return the sum (N,) of numbers, given the sum of their elements of the ring."""
    values = total.view(np.int64).astype(np.float64)
    return np.ldexp(values, -exponent, out=values)


def mask(vector: Ring, key: bytes, sign: Literal[1, -1]) -> None:
    """Add a key's mask to a vector (N,) in place, or take it off; modulo 2⁶⁴.

    Args:
        key: 32 bytes, used for nothing else.
        sign: 1 adds, -1 takes off.
    """
    stream = Cipher(ChaCha20(key, _NONCE), mode=None).encryptor()
    zeros = bytes(8 * min(CHUNK, vector.size))
    for start in range(0, vector.size, CHUNK):
        part = vector[start : start + CHUNK]
        numbers = np.frombuffer(stream.update(zeros[: part.nbytes]), "<u8")
        if sign == 1:
            part += numbers
        else:
            part -= numbers


def threshold(members: int) -> int:
    """Return how many of so many, a client and its neighbours, take its masks off."""
    return max(members // 2 + 1, math.ceil(THRESHOLD * members - 1e-9))


def neighbours_of(client: int, clients: Sequence[int], label: str) -> list[int]:
    """Return a client's neighbours, sorted; the relation is symmetric.

    With more than ``NEIGHBOURS`` others, clients stand in a circle, shuffled by the label, and each
    has the same number of neighbours on either side: a Harary graph, which falls apart only if as
    many clients are missing as each has neighbours.

    Args:
        clients: All clients, itself among them, sorted.
        label: The name of the round; clients and server shuffle alike.

    Source: Bell et al. (2020), "Secure single-server aggregation with (poly)logarithmic overhead",
    section 3.
    """
    others = [other for other in clients if other != client]
    if len(others) <= NEIGHBOURS:
        return others
    digest = hashlib.sha256(label.encode()).digest()
    generator = randomness.generator(int.from_bytes(digest[:16], "little"), "neighbours")
    circle = np.array(clients)[generator.permutation(len(clients))]
    place = int(np.flatnonzero(circle == client)[0])
    steps = np.arange(1, NEIGHBOURS // 2 + 1)
    near = np.concatenate([place + steps, place - steps]) % len(circle)
    return sorted(int(other) for other in circle[near])


def split(secret: bytes, needed: int, count: int) -> list[bytes]:
    """Return shares of a secret, all of 16 bytes; who combines them numbers them from 1.

    Args:
        needed: How many shares give it back, at least 2.
    """
    return [share for _, share in sorted(Shamir.split(needed, count, secret, False))]


def combine(shares: Mapping[int, bytes], needed: int, is_right: Callable[[bytes], bool]) -> bytes:
    """Return the secret of which these are shares, or raise ProtocolError.

    Of more shares than are needed those that follow each other are tried in turn, so that one
    wrong share does no harm.

    Args:
        shares: By their number, from 1.
        needed: How many are needed; there are as many.
        is_right: Whether a secret is the one.
    """
    held = sorted(shares.items())
    for start in range(len(held) if len(held) > needed else 1):
        used = (held[start:] + held[:start])[:needed]
        try:
            secret = bytes(Shamir.combine(used, False))
        except ValueError:  # one has another length
            continue
        if is_right(secret):
            return secret
    raise ProtocolError("shares do not give the secret that they are of")
