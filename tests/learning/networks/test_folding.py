"""Batch normalisation folded into the layer before it: the same function, with fewer operations."""

import numpy as np
import pytest
from small_network import build

pytestmark = pytest.mark.usefixtures("tensorflow")

SHAPE = (8, 8, 3)


def network(inference, precision="float32"):
    """Return a network whose weights and moving statistics are not those that it begins with."""
    built = build("resnet8", inference, SHAPE, precision=precision)
    scramble(built.model)
    return built


def scramble(model, seed=0):
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        low, high = (0.5, 2.0) if "variance" in weight.name else (-0.5, 0.5)
        weight.assign(rng.uniform(low, high, weight.shape))


def images(count=5):
    return np.random.default_rng(1).uniform(-1, 1, (count, *SHAPE)).astype(np.float32)


def folded_model(model):
    from bfl.evaluation.prediction.forward import FoldedModel

    return FoldedModel(model)


def operations(model):
    from bfl.keras import tf

    predict = tf.function(lambda batch: model(batch, training=False))
    graph = predict.get_concrete_function(tf.TensorSpec([None, *SHAPE])).graph
    return {operation.type for operation in graph.get_operations()}


def test_same_outputs_without_any_normalisation():
    model = network("deterministic").model
    folded = folded_model(model).model
    expected = model(images(), training=False).numpy()
    assert np.ptp(expected) > 1
    np.testing.assert_allclose(folded(images(), training=False), expected, rtol=1e-4, atol=1e-4)
    assert any("BatchNorm" in operation for operation in operations(model))
    assert not any("BatchNorm" in operation for operation in operations(folded))


def test_weights_are_taken_over_when_told_and_the_model_stays_as_it_is():
    model = network("deterministic").model
    folded = folded_model(model)
    scramble(model, seed=2)
    weights = [weight.numpy() for weight in model.weights]
    expected = model(images(), training=False).numpy()
    before = folded.model(images(), training=False).numpy()
    assert not np.allclose(before, expected, atol=0.1)
    folded.update()
    after = folded.model(images(), training=False).numpy()
    np.testing.assert_allclose(after, expected, rtol=1e-4, atol=1e-4)
    for weight, value in zip(model.weights, weights, strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)


def test_dropout_between_the_two_keeps_them_apart():
    model = network("mc-dropout").model
    assert folded_model(model).model is model


def test_what_others_take_as_well_is_not_folded():
    from bfl.keras import keras

    inputs = keras.Input(SHAPE)
    shared = keras.layers.Conv2D(4, 3, padding="same")(inputs)
    normalized = keras.layers.BatchNormalization()(shared)
    active = keras.layers.Conv2D(4, 3, padding="same", activation="relu")(inputs)
    without_bias = keras.layers.Conv2D(4, 3, padding="same", use_bias=False)(inputs)
    outputs = [shared, normalized]
    outputs += [keras.layers.BatchNormalization()(features) for features in (active, without_bias)]
    plain = [keras.layers.Conv2D(4, 3, padding="same")(inputs) for _ in range(2)]
    outputs += map(keras.layers.BatchNormalization(), plain)  # one for both
    model = keras.Model(inputs, keras.layers.Add()(outputs))
    scramble(model)
    assert folded_model(model).model is model
