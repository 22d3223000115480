"""Digest of images and labels, bit for bit."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt


def digest_of(*arrays: npt.NDArray[Any]) -> str:
    """Return the SHA-256 of arrays with their types and shapes, as hexadecimal digits.

    CIFAR-10 with its 60,000 images, 184 MB, takes less than a second.
    """
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype.str} {array.shape} ".encode())
        found.update(np.ascontiguousarray(array).data if array.size else b"")
    return found.hexdigest()
