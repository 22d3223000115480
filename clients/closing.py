"""The end of a run on a client: sums over its data for the closing, and the final model's test."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from flwr.app import Context, Message

from bfl import errors
from bfl.aggregation.weightings import Equal
from bfl.closing import Closed, base
from bfl.closing.base import Examples, Sizes, SumsRound, with_one
from bfl.data.datasets.encoding import Column
from bfl.evaluation.metrics import evaluate
from bfl.evaluation.metrics.base import set_numbers
from bfl.evaluation.regression import negative_log_likelihoods
from bfl.federation import client_metrics as names
from bfl.federation import wire
from bfl.posteriors import Posterior
from clients.masked import mask_sums, read_task
from clients.node import start_tensorflow

if TYPE_CHECKING:
    from bfl.evaluation.prediction.monte_carlo import Predictor
    from clients.examples import PreparedClient

OWN_SAMPLES = 20  # draws of the whole network that the closing is compared with


def measure_closing_sums(
    message: Message, context: Context, task: wire.TrainTask, client: PreparedClient
) -> Message:
    """Answer with the sums that the chain of closings asks for in this round.

    They are measured at the posterior's mean, in inference mode, on the examples that the client
    trains on, and on those that it holds back from training.
    """
    node, configuration, count = client.node, client.configuration, int(client.examples.size)
    secure_sums = configuration.exchange.secure_sums
    masked = read_task(message, node, Equal(), count) if secure_sums else None
    start_tensorflow()
    arrays: Any = message.content[wire.ARRAYS]
    posterior = wire.posterior_from_arrays(arrays, 1.0)
    standardised = None if client.targets is None else Column("target")
    network = (configuration.architecture, configuration.inference, client.data.image_shape)
    predictor = _predictor(*network, client.classes, standardised)
    *_, kernel, _ = predictor.manifest
    sizes = Sizes(kernel.shape[0], client.classes, [*predictor.manifest.stages.values()])
    known = wire.extra_arrays(message.content)
    following = SumsRound.next_round(configuration.closing, known, sizes)
    compares = any(each.compares_draws for each in following.measurements)
    examples = partial(_examples, predictor, posterior, task, client, compares)
    vector = following.measure(known, examples)
    if masked:
        content = mask_sums(message, context, masked, vector, count)
        return Message(content, reply_to=message)
    sums = base.sums_as_posterior(vector.astype(np.float32))
    return Message(wire.reply_content(sums, {names.NUM_EXAMPLES: count}), reply_to=message)


def measure_final_model(
    message: Message, context: Context, task: wire.TrainTask, client: PreparedClient
) -> Message:
    """Answer with counts and metrics of the final, closed model on the node's own test examples."""
    from bfl.experiments.run.evaluator import EvaluationNetwork, Evaluator

    configuration = client.configuration
    if reason := configuration.nodes_keep_metrics:
        raise errors.public(errors.ConfigurationError(f"this client sends no metrics: {reason}"))
    start_tensorflow()
    arrays: Any = message.content[wire.ARRAYS]
    data, known = client.data, wire.extra_arrays(message.content)
    shape = (configuration.architecture, configuration.inference, data.image_shape)
    predictor = _predictor(*shape, client.classes, data.target)
    posterior = wire.posterior_from_arrays(arrays, 1.0)
    network = EvaluationNetwork(posterior, predictor.manifest, predictor)
    closed, samples = Closed(known) if known else None, configuration.keys.mc_samples
    evaluator, answers = Evaluator(configuration, data, network=network), data.tested_on
    predictions = evaluator.predict(posterior, samples=samples, purpose="final", closed=closed)
    metrics: Any = evaluate(predictions, answers, configuration.values)
    metrics |= set_numbers(predictions, answers)
    metrics[names.NUM_EXAMPLES] = int(client.examples.size)
    metrics[names.TEST_EXAMPLES] = len(answers)
    if client.targets is None and client.classes == 2:
        right, ones = predictions.predicted == answers, answers == 1
        counts = [int(some.sum()) for some in (ones, right[ones], right[~ones])]
        metrics |= zip(names.COUNTS[1:], counts, strict=True)
    nothing = base.sums_as_posterior(np.zeros(0, np.float32))
    return Message(wire.reply_content(nothing, metrics), reply_to=message)


def _examples(
    predictor: Predictor,
    posterior: Posterior,
    task: wire.TrainTask,
    client: PreparedClient,
    compares: bool,
    held_back: bool,
) -> Examples | None:
    """Return the examples that a client holds back, or trains on; None without any.

    Where ``compares``, draws of the whole network predict the held-back ones, if it is drawn.
    """
    configuration, data = client.configuration, client.data
    positions = client.held_back if held_back else client.examples
    if not positions.size:
        return None
    images, labels = data.train_images[positions], client.labels[positions]
    digest = posterior.digest()
    if client.features.get(held_back, ("",))[0] != digest:  # each round of sums needs the same
        client.features[held_back] = digest, _features(predictor, posterior, images, task)
    features, *stages = map(with_one, client.features[held_back][1])
    seen = Examples(features, labels, client.classes, [each[:, :-1] for each in stages])
    if client.targets is not None:
        seen = replace(seen, targets=np.asarray(client.targets[positions], np.float64))
    drawn = posterior.size or predictor.network.inference.stochastic_prediction
    if not (held_back and compares and drawn) or configuration.keys.evaluate_at == "mean":
        return seen
    predict = partial(predictor.predict, samples=OWN_SAMPLES, seed=configuration.keys.seed)
    predicted: Any = predict(posterior, images, labels=("closing",))
    if client.targets is not None:
        own = -negative_log_likelihoods(predicted, seen.targets)
        return replace(seen, own=own, drawn=predicted)
    return replace(seen, own=predicted.log_mean_probability[np.arange(len(labels)), labels])


def _features(
    predictor: Predictor, posterior: Posterior, images: Any, task: wire.TrainTask
) -> list[npt.NDArray[np.float32]]:
    """Return the features (N, F) of images at the mean, and those of stages."""
    widths = [*predictor.manifest.stages.values()]
    found = predictor.features_at_mean(posterior, images, stages=bool(widths))
    if longer := np.count_nonzero(np.linalg.norm(found, axis=1) > base.FEATURE_BOUND):
        warning = (
            f"warning: client {task.partition_id}: features of {longer} of {len(found)} examples "
            f"are longer than {base.FEATURE_BOUND:g}; a closing shortens them to that, in its sums "
            "and in predictions"
        )
        print(warning, file=sys.stderr, flush=True)
    ends = found.shape[1] - np.cumsum([0, *widths[::-1]])[:0:-1]
    return np.split(np.asarray(found, np.float32), ends, axis=1)


@lru_cache(maxsize=2)
def _predictor(
    architecture: Any, inference: Any, shape: Any, classes: int, target: Column | None
) -> Predictor:
    from bfl.evaluation.prediction.monte_carlo import Predictor
    from bfl.experiments.run.network import statistics_of
    from bfl.learning.networks.network import build_network

    network = build_network(architecture, inference, shape, classes)
    return Predictor(network, architecture, statistics=statistics_of(target))
