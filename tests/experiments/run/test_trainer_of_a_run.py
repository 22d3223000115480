"""What a process builds once for all tasks of a configuration."""

import pytest

import bfl.keras
from bfl.configuration import resolve
from bfl.errors import ConfigurationError
from bfl.experiments.run.network import trainer_for


def configuration(**changes):
    changed = {key.replace("_", "-"): value for key, value in changes.items()}
    return resolve({"model": "resnet8", "dataset": "digits", "strategy": "ws", **changed})


def test_trainers_are_built_once_for_all_clients_rounds_and_rules(tensorflow):
    def trainer(**changes):
        return trainer_for(configuration(**changes), (8, 8, 1), 10)

    first = trainer()
    for changes in (
        {},
        {"rounds": 3, "local_epochs": 2, "seed": 5, "learning_rate": 0.01},
        {"strategy": "conflation", "weighting": "equal", "partition": "shards"},
        {"prior": "previous-global", "prior_scale": 2.0},
    ):
        assert trainer(**changes) is first
    for changes in ({"batch_size": 16}, {"augmentation": "crop-flip"}, {"optimizer": "sgd"}):
        other = trainer(**changes)
        assert other is not first
        assert other.network is first.network
    points = trainer(inference="deterministic", strategy="naive-weighted-averaging")
    assert points.network is not first.network
    assert trainer(normalization="group").network is not first.network
    assert first.batch_size == 32
    assert first.network.image_shape == (8, 8, 1)
    assert first.network.classes == 10


@pytest.mark.parametrize("shape", [(3, 8, 1), (8, 3, 1), (1, 1, 3)])
def test_images_that_are_too_small_for_the_model(tensorflow, shape):
    message = f"'resnet8' takes images of at least 4 pixels a side, not {shape[0]} x {shape[1]}"
    with pytest.raises(ConfigurationError, match=message):
        trainer_for(configuration(), shape, 10)


@pytest.mark.parametrize(
    ("gpus", "model", "compiled"),
    [(0, "resnet8", False), (1, "resnet8", True), (1, "convolutional", False)],
)
def test_xla_is_on_where_there_is_a_gpu(tensorflow, monkeypatch, gpus, model, compiled):
    """Devices are a list of TensorFlow's own, which is replaced."""
    monkeypatch.setattr(tensorflow.config, "list_logical_devices", lambda kind: [kind] * gpus)
    trainer = trainer_for(configuration(model=model), (32, 32, 3), 10)
    assert hasattr(trainer._one_step, "experimental_get_compiler_ir") == compiled


def test_memory_of_all_gpus_grows_as_it_is_needed(tensorflow, monkeypatch):
    """Flower's Ray backend drops its own setting for it."""
    grown, gpus = [], ["gpu-0", "gpu-1"]
    monkeypatch.setattr(bfl.keras, "_configured_threads", None)
    monkeypatch.setattr(bfl.keras, "_operations_at_once", None)
    monkeypatch.setattr(tensorflow.config, "list_physical_devices", lambda kind: gpus)
    growth = "set_memory_growth"
    monkeypatch.setattr(tensorflow.config.experimental, growth, lambda *given: grown.append(given))
    for name in ("set_intra_op_parallelism_threads", "set_inter_op_parallelism_threads"):
        monkeypatch.setattr(tensorflow.config.threading, name, lambda threads: None)
    bfl.keras.configure(1)
    assert grown == [(gpu, True) for gpu in gpus]
