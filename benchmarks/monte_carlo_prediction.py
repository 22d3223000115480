"""One Monte Carlo sample of a test set with Flipout ResNet-20, against TFP's own layers and a peer.

TensorFlow Probability's layers draw Flipout's signs and two convolutions per layer for every batch;
this project draws the weights once per sample and predicts with plain convolutions.

    python benchmarks/monte_carlo_prediction.py --output FILE
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from measuring import (
    IMAGE_SHAPE,
    NO_PEER,
    Report,
    alternate,
    last_lines,
    options,
    peer,
    publish,
    row,
)

from bfl.engine.processes import cpus_of_this_process
from bfl.evaluation.prediction.monte_carlo import Predictor
from bfl.keras import configure, keras, tf, tfp
from bfl.learning.inferences import Flipout, Layers
from bfl.learning.models import architectures
from bfl.learning.networks.network import build_network

BATCH, OURS = 250, 128


class UnkeyedFlipout(Flipout):
    """TensorFlow Probability's Flipout layers as they come."""

    def layers(self) -> Layers:
        """Return them without their form, which is bfl's."""

        def formless(make: Any) -> Any:
            return lambda *given, form, **named: make(*given, **named)

        return formless(tfp.layers.Convolution2DFlipout), formless(tfp.layers.DenseFlipout)


def theirs(images: Any) -> Any:
    """Return a call that predicts all images with TensorFlow Probability's layers."""
    model: keras.Model = architectures.create("resnet20").build(UnkeyedFlipout(), IMAGE_SHAPE, 10)
    forward = tf.function(lambda batch: tf.nn.softmax(model(batch, training=False)))
    scaled = tf.cast(images, tf.float32) / 127.5 - 1.0

    def predict() -> None:
        for start in range(0, len(images), BATCH):
            forward(scaled[start : start + BATCH]).numpy()

    return predict


def ours(images: Any) -> Any:
    """Return a call that predicts all images with this project's predictor."""
    architecture = architectures.create("resnet20")
    network = build_network(architecture, Flipout(), IMAGE_SHAPE, 10)
    predictor = Predictor(network, architecture, batch_size=OURS)
    posterior = network.initial_posterior(0)
    return lambda: predictor.predict(posterior, images, samples=1, seed=0, labels=(0,))


def main() -> None:
    """Run the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--images", type=int, default=10000, help="images of the test set (10000)")
    given = parser.parse_args()
    threads = cpus_of_this_process()
    configure(threads)
    tf.random.set_seed(0)  # TensorFlow Probability's own layers draw from stateful generators
    images = np.random.default_rng(0).integers(0, 256, (given.images, *IMAGE_SHAPE), dtype=np.uint8)
    taken = alternate({"ours": ours(images), "theirs": theirs(images)}, given.runs)
    rates = {name: timing.rate(given.images) for name, timing in taken.items()}
    what = f"one sample of {given.images} images, {threads} threads"
    own = "TensorFlow Probability's layers, float32"
    rows = [row(what, "img/s", rates["ours"], own, rates["theirs"], 2.5, rates=True)]
    notes = [f"random images {IMAGE_SHAPE}; batches of {BATCH} (theirs) and {OURS} (ours)"]
    options_of_peer = ("predict", "--steps", "2", "--threads", str(threads))
    if command := peer("bayesian_torch_resnet20.py", *options_of_peer):
        peers = json.loads(last_lines(command)[0])["images_per_second"]
        rows.append(row(what, "img/s", rates["ours"], "bayesian-torch", peers, rates=True))
    else:
        notes.append(NO_PEER.format("bayesian-torch"))
    title = "One Monte Carlo sample of a test set, Flipout ResNet-20"
    publish(Report("monte_carlo_prediction", title, rows, notes), given.output)


if __name__ == "__main__":
    main()
