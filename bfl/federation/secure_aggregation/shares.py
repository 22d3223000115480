"""Shares of a secret, of which any so many give it back and fewer say nothing about it."""

from __future__ import annotations

from collections.abc import Mapping

from Crypto.Protocol.SecretSharing import Shamir

from bfl.federation.secure_aggregation.errors import ProtocolError


def split(secret: bytes, threshold: int, count: int) -> list[bytes]:
    """Return shares of 16 bytes each; who combines them numbers them from 1.

    Args:
        secret: 16 bytes.
        threshold: How many shares give it back, at least 2.
        count: How many there are.
    """
    return [share for _, share in sorted(Shamir.split(threshold, count, secret, False))]


def combined(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """Return the secret of which these are shares.

    Args:
        shares: By their number, from 1.
        threshold: How many are needed; of more, those of the lowest numbers are taken.

    Raises:
        ProtocolError: They are no shares.
    """
    used = sorted(shares.items())[:threshold]
    try:
        return bytes(Shamir.combine([(number, share) for number, share in used], False))
    except ValueError as error:
        raise ProtocolError(f"shares do not give a secret: {error}") from error
