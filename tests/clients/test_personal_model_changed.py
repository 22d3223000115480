"""A client goes on with the personal model that it kept, and no other one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bfl.configuration import resolve
from bfl.errors import ConfigurationError
from bfl.federation.parts import Arrays
from bfl.federation.wire import TrainTask
from clients.personal import kept_of_model, personal_task
from clients.state import PartStates

CONFIGURATION = resolve(
    {
        "strategy": "fedavg",
        "inference": "deterministic",
        "model": "mlp",
        "personalization": "distillation",
    }
)
TASK = TrainTask(3, 1, "{}", 10, None, pooled_round=2)


def states(kept: Arrays) -> PartStates:
    name = CONFIGURATION.personalization.client_state_name
    return PartStates(CONFIGURATION.parts, {name: kept})


def kept(word: str) -> Arrays:
    trained: Any = SimpleNamespace(personal={"mean": np.zeros(2)})
    return kept_of_model(CONFIGURATION, trained, word)


@pytest.mark.parametrize(
    ("before", "now"), [("resnet8", "resnet8"), ("", "mlp"), ("mlp", ""), (None, "resnet8")]
)
def test_the_model_that_was_kept_is_gone_on_with(before: str | None, now: str) -> None:
    """What was kept before words were kept is taken as it is."""
    state = {"mean": np.zeros(2)} if before is None else kept(before)
    task = personal_task(CONFIGURATION, TASK, states(state), now)
    assert task is not None
    assert task.state["mean"].tolist() == [0.0, 0.0]


def test_another_model_is_refused_and_the_server_told_why() -> None:
    with pytest.raises(ConfigurationError) as refused:
        personal_task(CONFIGURATION, TASK, states(kept("")), "resnet8")
    assert refused.value.public
    assert str(refused.value) == (
        "client 1: the personal model that it kept in round 2 is 'mlp', and it would be 'resnet8' "
        "now (personal-model in the node's configuration); allowed: 'mlp' to the end of the run"
    )


def test_without_a_personal_model_nothing_is_kept() -> None:
    nothing: Any = SimpleNamespace(personal={})
    assert kept_of_model(CONFIGURATION, nothing, "") == {}
