"""Masks: streams of ChaCha20 that are added to a vector of the ring, or taken off it."""

from __future__ import annotations

from typing import Literal

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from bfl.federation.secure_aggregation.fixed_point import Ring

CHUNK = 1 << 17
"""Numbers masked at a time: a MB, which stays in the processor's cache."""

_NONCE = bytes(16)
"""A counter from 0 and a nonce of 0: each key makes one mask in its life."""


def mask(vector: Ring, key: bytes, sign: Literal[1, -1]) -> None:
    """Add a key's mask to a vector (N,) in place, or take it off; modulo 2⁶⁴.

    Args:
        vector: The vector.
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
