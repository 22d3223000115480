"""Which client has a personal model of which architecture."""

import pytest

from bfl.configuration import resolve
from bfl.errors import ConfigurationError
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
