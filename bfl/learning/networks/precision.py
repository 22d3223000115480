"""In which floating-point type a network computes: its activations, never its parameters.

Parameters, the divergence, the loss and the optimiser stay in float32, so what is sent and pooled
has the same precision either way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from bfl.keras import keras, tf

Precision = Literal["float32", "bfloat16"]

_POLICIES: dict[Precision, str] = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
"""Keras' names of the policies."""


@contextmanager
def computing_in(precision: Precision) -> Iterator[None]:
    """Have layers that are made inside compute in a precision (Keras' global policy)."""
    before = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy(_POLICIES[precision])
    try:
        yield
    finally:
        keras.mixed_precision.set_global_policy(before)


def compute_type() -> Any:
    """Return the TensorFlow type in which a layer that is made now computes."""
    return tf.as_dtype(keras.mixed_precision.global_policy().compute_dtype)
