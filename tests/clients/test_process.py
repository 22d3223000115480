"""What a process builds once, and how many threads it takes."""

import json
import os

import numpy as np
import pytest

from bfl.configuration import resolve
from bfl.data.datasets import load_dataset
from bfl.engine.resources import cpus_of_this_process
from bfl.errors import ConfigurationError


def text(**changes):
    values = {"model": "resnet8", "dataset": "digits"}
    return json.dumps({**values, **{k.replace("_", "-"): v for k, v in changes.items()}})


def test_configurations_are_resolved_once():
    from clients.process import cached_configuration

    first = cached_configuration(text())
    assert cached_configuration(text()) is first
    assert first.values == resolve(json.loads(text())).values
    assert cached_configuration(text(rounds=3)).keys.rounds == 3


def test_configurations_of_data_elsewhere_are_taken_and_nonsense_is_not():
    from clients.process import cached_configuration

    configuration = cached_configuration(text(dataset="npz:elsewhere.npz"))
    assert configuration.keys.dataset == "npz:elsewhere.npz"
    with pytest.raises(ConfigurationError, match="modl"):
        cached_configuration(text(modl="resnet8"))


def test_run_data_are_loaded_once(tensorflow):
    from bfl.data.datasets import cached_dataset
    from clients.process import shared_data

    data = shared_data("digits", "")
    assert shared_data("digits", "").images is data.images
    dataset = load_dataset("digits")
    assert data.size == len(dataset.train_labels)
    np.testing.assert_array_equal(data.images, dataset.train_images)
    np.testing.assert_array_equal(data.labels, dataset.train_labels)
    assert data.images.dtype == np.uint8
    # A process that serves both sides holds the images once.
    assert data.images is cached_dataset("digits", "").train_images


def test_own_data_are_all_training_images_of_the_archive(tensorflow, tmp_path):
    from clients.process import own_data

    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(0, 256, (12, 8, 8, 1), dtype=np.uint8),
        "y_train": np.arange(12) % 3,
        "x_test": rng.integers(0, 256, (4, 8, 8, 1), dtype=np.uint8),
        "y_test": np.arange(4) % 3,
    }
    np.savez(tmp_path / "site.npz", **arrays)
    location = f"npz:{tmp_path / 'site.npz'}"
    data = own_data(location)
    assert own_data(location).images is data.images
    assert data.size == 12
    np.testing.assert_array_equal(data.images, arrays["x_train"])
    np.testing.assert_array_equal(data.labels, arrays["y_train"])
    # The node's process lives on when somebody puts other images there.
    np.savez(tmp_path / "site.npz", **{**arrays, "x_train": 255 - arrays["x_train"]})
    np.testing.assert_array_equal(own_data(location).images, 255 - arrays["x_train"])


@pytest.mark.parametrize(
    ("given", "expected"), [("1", 1), ("3", 3), ("2.7", 2), ("0.5", 1), ("64", 64)]
)
def test_cpus_given_by_the_environment(monkeypatch, given, expected):
    monkeypatch.setenv("BFL_CPUS", given)
    assert cpus_of_this_process() == expected


def test_cpus_given_by_the_operating_system(monkeypatch):
    monkeypatch.delenv("BFL_CPUS")
    assert cpus_of_this_process() == len(os.sched_getaffinity(0))
    monkeypatch.setenv("BFL_CPUS", "0")
    assert cpus_of_this_process() == len(os.sched_getaffinity(0))


def test_tensorflow_takes_the_threads_of_this_process(tensorflow, monkeypatch):
    from bfl.keras import configured_threads
    from clients.process import start_tensorflow

    assert configured_threads() == 1
    # A second call changes nothing: TensorFlow has started.
    monkeypatch.setenv("BFL_CPUS", "5")
    start_tensorflow()
    assert configured_threads() == 1
    assert tensorflow.config.threading.get_intra_op_parallelism_threads() == 1
    assert tensorflow.config.threading.get_inter_op_parallelism_threads() == 1
