"""A client goes on with the personal model that it kept, and no other one."""

import numpy as np
import pytest

from bfl.errors import ConfigurationError
from bfl.federation.wire import TrainTask
from clients.round import MODEL, check_model

TASK = TrainTask(3, 1, "{}", 10, None, pooled_round=2)


def kept(word: str) -> dict[str, np.ndarray]:
    return {"mean": np.zeros(2), MODEL: np.frombuffer(word.encode(), np.uint8)}


def test_the_model_that_was_kept_is_gone_on_with() -> None:
    """What was kept before words were kept is taken as it is."""
    check_model(TASK, kept("resnet8"), "resnet8")
    check_model(TASK, {"mean": np.zeros(2)}, "resnet8")
    check_model(TASK, {}, "mlp")


def test_another_model_is_refused_and_the_server_told_why() -> None:
    with pytest.raises(ConfigurationError, match=r"client 1.*round 2.*'mlp'.*'resnet8'") as refused:
        check_model(TASK, kept("mlp"), "resnet8")
    assert refused.value.public
