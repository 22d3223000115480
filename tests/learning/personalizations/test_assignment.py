"""Which client has a personal model of which architecture."""

from dataclasses import replace

import numpy as np
import pytest

from bfl.configuration import resolve
from bfl.data.datasets import load_dataset
from bfl.errors import ConfigurationError
from bfl.experiments.run.network import check_models
from bfl.learning.personalizations import Assignment

TEN = "mlp:2,lenet5:2,cnn1:3,cnn2:3"


def words(text, clients):
    return Assignment.parse(text).words(clients)


def test_numbers_go_by_partition_ids_and_a_last_model_without_one_is_for_all_others():
    expected = ["mlp"] * 2 + ["lenet5"] * 2 + ["cnn1"] * 3 + ["cnn2"] * 3
    assert list(words(TEN, 10)) == expected
    assert words("mlp:1, cnn1", 3) == ("mlp", "cnn1", "cnn1")
    assert words("resnet8", 2) == ("resnet8", "resnet8")
    assert words("mlp:2,cnn1", 2) == ("mlp", "mlp")
    assert words("", 2) == ("", "")


@pytest.mark.parametrize(
    "text", ["mlp:0", "mlp:-1", "mlp,cnn1", "mlp:2,,cnn1", ":3", "mlp:x", "mlp:2,cnn9:1"]
)
def test_other_texts_and_unknown_models_are_refused(text):
    with pytest.raises(ConfigurationError, match="cnn9" if "cnn9" in text else "personal-models"):
        resolve({"strategy": "hbfl", "personalization": "alone", "personal-models": text})


def test_images_that_are_too_small_for_somebodys_model_are_refused():
    values = {"personalization": "distillation", "personal-models": "mlp:2,cnn1:1"}
    configuration, small = resolve(values), load_dataset("digits")
    large = replace(small, train_images=np.zeros((1, 28, 28, 1), np.uint8))
    check_models(configuration, large, 3)
    with pytest.raises(ConfigurationError, match="cnn1"):
        check_models(configuration, small, 3)
    with pytest.raises(ConfigurationError, match=r"3.*2"):
        check_models(configuration, large, 2)
