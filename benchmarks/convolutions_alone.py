"""The convolutions of a Flipout ResNet-20 training step and nothing else; prints images per second.

    python convolutions_alone.py float32|bfloat16 STEPS BATCH

Each layer's two convolutions, forwards, and their gradients by inputs and by kernels (the first
layer's inputs need none), one after the other on one thread: what is left of a training step if all
else cost nothing.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from bfl.keras import configure, tf

LAYERS = (
    [(32, 3, 16, 1)]
    + [(32, 16, 16, 1)] * 6
    + [(32, 16, 32, 2)]
    + [(16, 32, 32, 1)] * 5
    + [(16, 32, 64, 2)]
    + [(8, 64, 64, 1)] * 5
)
"""Side of the images, channels before and after, strides."""


def main() -> None:
    """Print the rate."""
    precision, steps, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    configure(1)
    dtype = tf.as_dtype(precision)

    def tensor(*shape: int) -> Any:
        return tf.cast(tf.random.stateless_normal(shape, seed=(0, 0)), dtype)

    data = []
    for side, before, after, strides in LAYERS:
        inputs, kernel = tensor(batch, side, side, before), tensor(3, 3, before, after)
        gradient = tensor(batch, side // strides, side // strides, after)
        data.append((inputs, kernel, gradient, strides))

    def step() -> None:
        for index, (inputs, kernel, gradient, strides) in enumerate(data):
            shared: dict[str, Any] = {"strides": [1, strides, strides, 1], "padding": "SAME"}
            for _ in range(2):
                tf.raw_ops.Conv2D(input=inputs, filter=kernel, **shared)
                if index:
                    tf.raw_ops.Conv2DBackpropInput(
                        input_sizes=inputs.shape,
                        filter=kernel,
                        out_backprop=gradient,
                        **shared,
                    )
                tf.raw_ops.Conv2DBackpropFilter(
                    input=inputs, filter_sizes=kernel.shape, out_backprop=gradient, **shared
                )

    step()
    started = time.perf_counter()
    for _ in range(steps):
        step()
    print(steps * batch / (time.perf_counter() - started))


if __name__ == "__main__":
    main()
