"""Masking of statistics in the ring: their encoding, neighbours, shares of secrets, masks.

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
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from Crypto.Protocol.SecretSharing import Shamir
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from bfl import randomness
from bfl.aggregation.pooling import Statistics
from bfl.errors import ProtocolError

Ring = npt.NDArray[np.uint64]
Array = npt.NDArray[np.float64]

HIGHEST = 62
"""Sums stay below 2 to this power, so that rounding cannot carry them across half of the ring."""

EXPONENTS = (-960, 960)
"""The least and the greatest exponent, for which the powers of 2 are float64 numbers."""

CHUNK = 1 << 17
"""Numbers encoded or masked at a time: a MB, which stays in the processor's cache, and all the
memory that a large model takes besides its vector."""

FEWEST_CLIENTS = 3
"""Least number of clients: of two, each knows the other's update from the sum and its own."""

_NONCE = bytes(16)
"""A counter from 0 and a nonce of 0: each key makes one mask in its life."""


def encoded_statistics(statistics: Statistics, exponents: Sequence[int]) -> Ring:
    """Return statistics (S, D) and (P,) as a vector (S·D + P,) of the ring.

    Args:
        exponents: S + 1 exponents, the last one of the point parameters.
    """
    rows = (*statistics.gaussian, statistics.point)
    vector, start = np.empty(sum(row.size for row in rows), np.uint64), 0
    for row, exponent in zip(rows, exponents, strict=True):
        encoded(row, exponent, vector[start : start + row.size])
        start += row.size
    return vector


def decoded_statistics(
    total: Ring, exponents: Sequence[int], size: int, point_size: int
) -> Statistics:
    """Return the sums of statistics in a vector that ``encoded_statistics`` of clients add up to.

    Args:
        total: (S·D + P,) the sum.
        exponents: S + 1 exponents.
        size: The number D of Gaussian parameters.
        point_size: The number P of point parameters.
    """
    rows = len(exponents) - 1
    gaussian = np.empty((rows, size))
    for row, exponent in enumerate(exponents[:-1]):
        gaussian[row] = decoded(total[row * size : (row + 1) * size], exponent)
    return Statistics(gaussian, decoded(total[rows * size :][:point_size], exponents[-1]))


def exponent_for(greatest_sum: float) -> int:
    """Return the greatest exponent with which sums up to ± ``greatest_sum`` are within range."""
    if not (math.isfinite(greatest_sum) and greatest_sum >= 0):
        raise ValueError(f"the greatest sum is {greatest_sum}; expected a finite number from 0")
    if not greatest_sum:
        return 0
    low, high = EXPONENTS
    # The sum lies in [2^(k-1), 2^k).
    return max(low, min(high, HIGHEST - math.frexp(greatest_sum)[1]))


def rounding(exponent: int, clients: int) -> float:
    """Return the greatest error of a sum over so many clients."""
    return math.ldexp(clients, -exponent - 1)


def encoded(values: Array, exponent: int, into: Ring | None = None) -> Ring:
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


def decoded(total: Ring, exponent: int) -> Array:
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


@dataclass(frozen=True)
class Neighbourhood:
    """Numbers of clients that share a client's secrets, and of those that can give them back.

    Attributes:
        neighbours: How many other clients each client exchanges masks with; all, if there are no
            more.
        share: The share of a client and its neighbours that is needed to take its masks off; more
            than half of them always are.
    """

    neighbours: int
    share: float

    def __str__(self) -> str:
        """Return it as the keys of a run; the same text for the same neighbourhood alone."""
        return f"masked-neighbours={self.neighbours}, masked-threshold={self.share!r}"

    def threshold(self, members: int) -> int:
        """Return how many of so many, a client and its neighbours, are needed."""
        return max(members // 2 + 1, math.ceil(self.share * members - 1e-9))

    def of(self, client: int, clients: Sequence[int], label: str) -> list[int]:
        """Return a client's neighbours, sorted; the relation is symmetric.

        With more than ``neighbours`` others, clients stand in a circle, shuffled by the label, and
        each has the same number of neighbours on either side: a Harary graph, which falls apart
        only if as many clients are missing as each has neighbours.

        Args:
            clients: All clients, itself among them, sorted.
            label: The name of the round; clients and server shuffle alike.

        Source: Bell et al. (2020), "Secure single-server aggregation with (poly)logarithmic
        overhead", section 3.
        """
        others = [other for other in clients if other != client]
        if len(others) <= self.neighbours:
            return others
        digest = hashlib.sha256(label.encode()).digest()
        generator = randomness.generator(int.from_bytes(digest[:16], "little"), "neighbours")
        circle = np.array(clients)[generator.permutation(len(clients))]
        place = int(np.flatnonzero(circle == client)[0])
        steps = np.arange(1, self.neighbours // 2 + 1)
        near = np.concatenate([place + steps, place - steps]) % len(circle)
        return sorted(int(other) for other in circle[near])


def split(secret: bytes, threshold: int, count: int) -> list[bytes]:
    """Return shares of a secret, all of 16 bytes; who combines them numbers them from 1.

    Args:
        threshold: How many shares give it back, at least 2.
    """
    return [share for _, share in sorted(Shamir.split(threshold, count, secret, False))]


def combined(
    shares: Mapping[int, bytes], threshold: int, is_right: Callable[[bytes], bool]
) -> bytes:
    """Return the secret of which these are shares, or raise ProtocolError.

    Of more shares than are needed those that follow each other are tried in turn, so that one
    wrong share does no harm.

    Args:
        shares: By their number, from 1.
        threshold: How many are needed; there are as many.
        is_right: Whether a secret is the one.
    """
    held = sorted(shares.items())
    for start in range(len(held) if len(held) > threshold else 1):
        used = (held[start:] + held[:start])[:threshold]
        try:
            secret = bytes(Shamir.combine(used, False))
        except ValueError:  # one has another length
            continue
        if is_right(secret):
            return secret
    raise ProtocolError("shares do not give the secret that they are of")
