"""The client's half of the closing round: sums over its data with the final network."""

from __future__ import annotations

import sys
from collections import OrderedDict
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from flwr.app import Context, Message

from bfl import randomness
from bfl.aggregation.weightings.equal import Equal
from bfl.closing.base import FEATURE_BOUND, Examples, with_one
from bfl.closing.chain import asked, deviations, greatest, measured
from bfl.configuration import Configuration
from bfl.data.images import shifted
from bfl.federation.client_metrics import NUM_EXAMPLES
from bfl.federation.privacy.noise import Normals, SystemNormals
from bfl.federation.wire import (
    ARRAYS,
    Positions,
    TrainTask,
    extra_arrays,
    posterior_from_arrays,
    reply_content,
)
from bfl.posteriors import Posterior
from clients.examples import held_back
from clients.masked import checked_task, masked_sums
from clients.process import TrainingData, start_tensorflow

if TYPE_CHECKING:
    from bfl.evaluation.prediction.monte_carlo import Predictor
    from clients.client_app import PreparedClient

FEATURES_KEPT = 192
"""The most arrays of features that a process keeps, one to three of each client."""


def closed(
    message: Message,
    context: Context,
    task: TrainTask,
    client: PreparedClient,
) -> Message:
    """Answer with the sums that the chain of closings asks for in this round.

    They are measured at the posterior's mean, in inference mode, on the examples that the client
    trains on, and on those that it holds back from training.
    """
    node, configuration, data = client.node, client.configuration, client.data
    examples, labels, classes = client.examples, client.labels, client.classes
    kept = held_back(task, data, node, configuration)
    told = None
    if configuration.exchange.secure_sums:
        told = checked_task(message, node, configuration, int(examples.size), Equal())
    noise = configuration.example_privacy.sums_noise
    start_tensorflow()
    arrays: Any = message.content[ARRAYS]
    # Its mean alone is used; variances may not have been sent.
    posterior = posterior_from_arrays(arrays, 1.0)

    def seen(positions: Positions, shift: int = 0) -> Examples:
        found = _features_of(task, configuration, classes, posterior, data, positions, shift)
        features, *stages = (
            with_one(each, noise.longest) if noise else with_one(each) for each in found
        )
        own, noised = [each[:, :-1] for each in stages], noise is not None
        return Examples(features, labels[positions], classes, noised, own)

    trained, known = seen(examples), extra_arrays(message.content)
    calibrating = trained
    if configuration.keys.calibration_share:
        nothing_held = replace(trained, features=trained.features[:0], labels=trained.labels[:0])
        calibrating = seen(kept) if kept.size else nothing_held
    side = min(data.image_shape[:2])
    parts = asked(configuration.closing, known)
    if shift := max((each.shift(known, side) for each in parts), default=0):
        trained = replace(trained, shifted=seen(examples, shift))
    vector = measured(configuration.closing, known, trained, calibrating)
    count = int(examples.size)
    if noise:
        width, stages = trained.features.shape[1] - 1, [x.shape[1] for x in trained.stages]
        chain, longest = configuration.closing, noise.longest
        deviation, _ = deviations(chain, known, longest, width, classes, stages)
        begun = sorted(f"{name} {value}" for name, value in known.items() if np.ndim(value) == 0)
        seed, whose = configuration.keys.seed, task.partition_id
        # No two releases have the same noise: their difference would have none.
        release = (posterior.digest(), repr(configuration.closing), repr(noise), *begun)
        seeded = randomness.generator(seed, "closing-noise", whose, *release)
        normals: Normals = seeded if node.simulated else SystemNormals()
        vector += noise.multiplier * deviation * normals.standard_normal(vector.size)
        vector = np.clip(vector, -greatest(count), greatest(count))
    if told:
        return Message(
            masked_sums(message, context, told, configuration, vector, count), reply_to=message
        )
    nothing = np.zeros(0, np.float32)
    sums = Posterior(nothing, nothing, vector.astype(np.float32))
    return Message(reply_content(sums, {NUM_EXAMPLES: count}), reply_to=message)


_features: OrderedDict[tuple[object, ...], list[npt.NDArray[np.float32]]] = OrderedDict()
"""Features (N, F) of clients' images, kept from one round of sums to the next."""


def _features_of(
    task: TrainTask,
    configuration: Configuration,
    classes: int,
    posterior: Posterior,
    data: TrainingData,
    positions: Positions,
    shift: int,
) -> list[npt.NDArray[np.float32]]:
    """Return the features (N, F) of a client's images at the mean, and of stages if asked for."""
    stages = any(each.sees_stages for each in configuration.closing)
    key = (
        posterior.digest(),
        task.configuration,
        task.partition_id,
        positions.tobytes(),
        shift,
        id(data.images),
    )
    if key not in _features:
        predictor = _predictor(configuration, data.image_shape, classes)
        images = data.images[positions]
        if shift:
            seed, whose = configuration.keys.seed, task.partition_id
            images = shifted(images, shift, randomness.generator(seed, "head-shift", whose))
        found = predictor.features_at_mean(posterior, images, stages=stages)
        widths = [*predictor.manifest.stages.values()] if stages else []
        ends = found.shape[1] - np.cumsum([0, *widths[::-1]])[:0:-1]
        _features[key] = np.split(np.asarray(found, np.float32), ends, axis=1)
        longer = np.count_nonzero(np.linalg.norm(found, axis=1) > FEATURE_BOUND)
        if longer and not shift:
            print(
                f"warning: client {task.partition_id}: features of {longer} of {len(found)} "
                f"examples are longer than {FEATURE_BOUND:g}; a closing shortens them to that, in "
                "its sums and in predictions",
                file=sys.stderr,
                flush=True,
            )
    _features.move_to_end(key)
    while len(_features) > FEATURES_KEPT:
        _features.popitem(last=False)
    return _features[key]


def _predictor(
    configuration: Configuration, image_shape: tuple[int, int, int], classes: int
) -> Predictor:
    """Return what gives features, traced once per process for these images and classes."""
    from bfl.learning.networks.network import build_network

    network = build_network(
        configuration.architecture, configuration.inference, image_shape, classes
    )
    return _made(network, configuration.architecture)


@lru_cache(maxsize=2)
def _made(network: Any, architecture: Any) -> Predictor:
    from bfl.evaluation.prediction.monte_carlo import Predictor

    return Predictor(network, architecture)
