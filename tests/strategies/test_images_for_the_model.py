"""Models that take no images as small as the data set's are refused before the start."""

import pytest

from bfl.configuration import resolve
from bfl.errors import ConfigurationError
from strategies.application.preflight import check_before_start


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"model": "convnet"}, "convnet"),
        (
            {"model": "mlp", "personalization": "distillation", "personal-models": "cnn2:1,mlp:1"},
            "cnn2",
        ),
    ],
    ids=["of the federation", "of a client"],
)
def test_the_refusal_names_the_model_the_data_set_and_both_sizes(
    values: dict[str, str], word: str
) -> None:
    with pytest.raises(ConfigurationError) as told:
        check_before_start(resolve({"dataset": "digits", **values}), 2)
    assert str(told.value) == (
        f"model '{word}' takes images of at least 18 pixels a side, not 8 x 8, "
        "as those of dataset 'digits' are"
    )
