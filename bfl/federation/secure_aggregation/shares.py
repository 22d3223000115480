"""Shares of a secret, of which any so many give it back and fewer say nothing about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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


def combined(
    shares: Mapping[int, bytes], threshold: int, is_right: Callable[[bytes], bool]
) -> bytes:
    """Return the secret of which these are shares.

    Of more shares than are needed those that follow each other are tried in turn, so that one
    wrong share does no harm.

    Args:
        shares: By their number, from 1.
        threshold: How many are needed; there are as many.
        is_right: Whether a secret is the one.

    Raises:
        ProtocolError: They are no shares of it.
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
