"""The one door to TensorFlow, TensorFlow Probability and the Keras 2 that its layers need.

Importing this module takes seconds; call ``configure`` before the first tensor is made.
"""

from __future__ import annotations

import gc
import logging
import os
import warnings

from bfl.printing import quiet_start

# Set before the import: no banner in every actor, and Keras 2 wherever something asks for Keras.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

# TFP 0.25 uses names that setuptools and Keras 2 have deprecated, once per layer and process.
warnings.filterwarnings("ignore", message="distutils Version", category=DeprecationWarning)
warnings.filterwarnings("ignore", message=".*add_variable.*", category=UserWarning)

# What an import makes stays: looking for garbage meanwhile takes a fifth of its time.
_collecting = gc.isenabled()
gc.disable()
try:
    with quiet_start():
        import tensorflow as tf
        import tensorflow_probability as tfp
        import tf_keras as keras
finally:
    if _collecting:
        gc.enable()

tf.get_logger().setLevel(logging.ERROR)

__all__ = ["configure", "has_gpu", "keras", "tf", "tfp"]

_configured_threads: int | None = None
_operations_at_once: int | None = None


def configure(threads: int, operations: int = 1) -> None:
    """Size TensorFlow's thread pools and let it take GPU memory as it needs it; once per process.

    Args:
        threads: Threads within one operation; at least 1. The bits depend on them. A second call
            with another number is ignored: TensorFlow cannot change it any more. Where somebody
            else has started it, it stays as it is, with a warning.
        operations: Operations that are computed side by side, on which no bit depends; at least
            as many as there are threads.
    """
    global _configured_threads, _operations_at_once
    if _configured_threads is not None:
        return
    _configured_threads = max(1, threads)
    _operations_at_once = max(_configured_threads, operations)
    try:
        tf.config.threading.set_intra_op_parallelism_threads(_configured_threads)
        tf.config.threading.set_inter_op_parallelism_threads(_operations_at_once)
        with quiet_start():
            gpus = tf.config.list_physical_devices("GPU")
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
    except RuntimeError:
        warnings.warn(
            "TensorFlow has computed in this process before bfl was used and keeps its threads: "
            "the last digits may differ. For the same bits, use bfl first in a process",
            stacklevel=2,
        )
    tf.config.experimental.enable_op_determinism()


def has_gpu() -> bool:
    """Return whether this process computes on a GPU."""
    return bool(tf.config.list_logical_devices("GPU"))


def configured_threads() -> int | None:
    """Return the threads that ``configure`` has set, or None before it was called."""
    return _configured_threads


def operations_at_once() -> int:
    """Return how many operations are computed side by side; 1 before ``configure`` was called."""
    return _operations_at_once or 1
