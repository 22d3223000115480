"""A client goes on with the personal model that it kept, and no other one."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict

from bfl.configuration import resolve
from bfl.engine.flower import new_run
from bfl.errors import ConfigurationError
from bfl.federation.wire import TrainTask
from bfl.learning.training import PersonalTask
from bfl.posteriors import Posterior
from clients.local_round import LocalRound
from clients.node import Node
from clients.options import TrainsPersonalModel
from clients.state import PartStates

CONFIGURATION = resolve(
    {
        "strategy": "fedavg",
        "inference": "deterministic",
        "model": "mlp",
        "personalization": "distillation",
    }
)


def made(word: str, kept: Any) -> tuple[LocalRound, TrainsPersonalModel]:
    """Return the round of a client whose node names a personal model, prepared."""
    config = {"partition-id": 1, "num-partitions": 2, "personal-model": word or "mlp"}
    context = Context(new_run({}).run_id, 1, config, RecordDict(), {})
    node = Node.of(context)
    nothing = Posterior(np.zeros(0, np.float32), np.zeros(0, np.float32), np.zeros(2, np.float32))
    local = LocalRound(
        message=Message(RecordDict(), 1, "train"),
        context=context,
        task=TrainTask(3, 1, "{}", 10, None, pooled_round=2),
        node=node if word else node.model_copy(update={"personal_model": ""}),
        configuration=CONFIGURATION,
        examples=np.arange(2),
    )
    local.received = nothing
    name = CONFIGURATION.personalization.client_state_name
    local.state_of = PartStates(CONFIGURATION.parts, {name: kept}).of_part
    option = TrainsPersonalModel()
    option.begin(local)
    option.prepare(local)
    return local, option


def kept(word: str) -> Any:
    """Return what a client keeps of a personal model of a word."""
    local, option = made(word, {})
    local.result = SimpleNamespace(personal={"mean": np.zeros(2)})  # type: ignore[assignment]
    option.conclude(local)
    return local.concluded["personal"]


@pytest.mark.parametrize(
    ("before", "now"), [("resnet8", "resnet8"), ("", "mlp"), ("mlp", ""), (None, "resnet8")]
)
def test_the_model_that_was_kept_is_gone_on_with(before: str | None, now: str) -> None:
    """What was kept before words were kept is taken as it is."""
    state = {"mean": np.zeros(2)} if before is None else kept(before)
    task: PersonalTask = made(now, state)[0].local_settings["personal"]
    assert task.state["mean"].tolist() == [0.0, 0.0]


def test_another_model_is_refused_and_the_server_told_why() -> None:
    with pytest.raises(ConfigurationError) as refused:
        made("resnet8", kept(""))
    assert refused.value.public
    assert str(refused.value) == (
        "client 1: the personal model that it kept in round 2 is 'mlp', and it would be 'resnet8' "
        "now (personal-model in the node's configuration); allowed: 'mlp' to the end of the run"
    )
