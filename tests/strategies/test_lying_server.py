"""A masked round whose server tells one client something else than the others."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from masked_federation import MASKED, SIZES, MaskedNodes, Run, Work

from bfl.errors import RunError
from bfl.federation.secure_aggregation.on_the_wire import CONFIRM, SHARE_KEYS, UNMASK
from bfl.federation.wire import ARRAYS, CONFIG
from bfl.posteriors import Posterior

VICTIM = 2
Lie = Callable[[Any], None]


def another_posterior(content: Any) -> None:
    mean = content[ARRAYS]["mean"].numpy()
    content[ARRAYS] = ArrayRecord({**content[ARRAYS], "mean": Array(mean + np.float32(1e-3))})


def another_grid(content: Any) -> None:
    secure = content["secure-aggregation"]
    secure["exponents"] = [exponent - 1 for exponent in secure["exponents"]]


def another_configuration(content: Any) -> None:
    given = json.loads(content[CONFIG]["configuration"])
    content[CONFIG]["configuration"] = json.dumps({**given, "learning-rate": 1e-9})


def another_total(content: Any) -> None:
    """Its own weight fits the sum that it alone is told."""
    secure = content["secure-aggregation"]
    secure["total"] = np.float64(SIZES[VICTIM] / 0.999).tobytes()
    secure["weight"] = np.float64(0.999).tobytes()


def another_weight(content: Any) -> None:
    content["secure-aggregation"]["weight"] = np.float64(0.999).tobytes()


class Lied(MaskedNodes):
    """Clients of which one is told something else than the others."""

    def __init__(self, lie: Lie) -> None:
        super().__init__()
        self._lie = lie

    def _train(self, message: Message, context: Context) -> Any:
        if int(context.node_config["partition-id"]) == VICTIM:
            content = RecordDict({name: message.content[name] for name in message.content})
            for name in (CONFIG, "secure-aggregation"):
                content[name] = type(content[name])(dict(content[name]))  # not the others' own
            self._lie(content)
            metadata = message.metadata
            message = Message(content, metadata.dst_node_id, "train", group_id=metadata.group_id)
        return super()._train(message, context)


def run(lie: Lie, warnings: list[str]) -> Posterior:
    return Run(MASKED, 1, Lied(lie), round_retries=0, warnings=warnings).posterior


@pytest.mark.parametrize(
    "lie", [another_posterior, another_grid, another_configuration, another_total]
)
def test_a_client_that_is_told_something_else_stays_masked_and_says_so(lie: Lie) -> None:
    """The others are told alike, and are enough: what they take off leaves its masks in the sum."""
    warnings: list[str] = []
    with pytest.raises(RunError, match="only the sum of the clients' statistics is known"):
        run(lie, warnings)
    assert any(
        f"client {VICTIM}: 1 of 6 neighbours, itself among them, confirm the same" in text
        for text in warnings
    )


def test_a_client_that_is_given_another_weight_sends_nothing() -> None:
    warnings: list[str] = []
    run(another_weight, warnings).check()
    said = "the server gives this client the weight 0.999, which by weighting 'train-size' is not"
    assert any(f"client {VICTIM}" in text and said in text for text in warnings)


class Lowered(MaskedNodes):
    """Clients that are told another threshold in one of the messages beside their tasks."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    def _stage(self, kind: str, answer: Work) -> Work:
        def lowered(message: Message, context: Context) -> Message:
            config: Any = message.content[CONFIG]
            given = json.loads(config["configuration"])
            config["configuration"] = json.dumps({**given, "masked-threshold": 0.01})
            return answer(message, context)

        return super()._stage(kind, lowered if kind == self._kind else answer)


@pytest.mark.parametrize("kind", [SHARE_KEYS, CONFIRM, UNMASK])
def test_a_threshold_that_is_not_that_of_the_task_is_refused(kind: str) -> None:
    """Masks hold what the task says; the other four messages say it anew."""
    warnings: list[str] = []
    given = {**MASKED, "pooling": "nwa", "masked-threshold": 1.0}
    with pytest.raises(RunError, match="nothing was unmasked"):
        Run(given, 1, Lowered(kind), round_retries=0, warnings=warnings)
    told, kept = ("1.0", "0.01") if kind == SHARE_KEYS else ("0.01", "1.0")
    assert len(warnings) == len(SIZES)
    for text in warnings:
        assert f"shared its secrets by masked-neighbours=30, masked-threshold={kept} and" in text
        assert f"told masked-neighbours=30, masked-threshold={told}; it sends nothing" in text
