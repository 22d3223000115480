"""What a server sends beside the posterior, held to what the method's parts declare of it."""

import json
import math
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from bfl.engine.flower import new_run
from bfl.federation import wire
from bfl.federation.wire import EXTRAS, TrainTask, posterior_to_arrays, train_content
from bfl.learning.corrections import GREATEST_CONTROL
from bfl.posteriors import Posterior
from clients import client_app
from clients import round as client_round

RECEIVED = Posterior(np.zeros(3, np.float32), np.ones(3, np.float32), np.zeros(2, np.float32))
MEAN, POINT = np.zeros(3, np.float32), np.zeros(2, np.float32)
SOUND = {"control-mean": MEAN, "control-point": POINT}
TRAINS = "this is where training begins"


@pytest.fixture(autouse=True)
def _nothing_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    def trainer_for(*given: Any, **_: Any) -> None:
        raise RuntimeError(TRAINS)

    monkeypatch.setattr(client_round, "start_tensorflow", lambda: None)
    monkeypatch.setattr(client_round, "trainer_for", trainer_for)


def reason(beside: ArrayRecord | ConfigRecord | None, **node: Any) -> str:
    """Return what a client of SCAFFOLD tells the server, whose task it gets."""
    values = {"dataset": "digits", "strategy": "scaffold"}
    task = TrainTask(1, 0, json.dumps(values), 10, np.arange(4))
    content = train_content(posterior_to_arrays(RECEIVED), task)
    if beside is not None:
        content[EXTRAS] = beside
    config = {"partition-id": 0, "num-partitions": 3, "state-dir": "/nowhere", **node}
    context = Context(new_run({}).run_id, 1, config, RecordDict(), {})
    return str(client_app.train(Message(content, 1, "train"), context).error.reason)


def test_what_is_declared_is_trained_with() -> None:
    assert TRAINS in reason(wire.vectors_to_arrays(SOUND), simulation=True)
    wide = {**SOUND, "control-mean": np.full(3, GREATEST_CONTROL, np.float32)}
    assert TRAINS in reason(wire.vectors_to_arrays(wide), simulation=True)


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        ({**SOUND, "gradient": POINT}, "an array 'gradient'"),
        ({"control-mean": MEAN}, "no array 'control-point'"),
        ({}, "no array 'control-mean'"),
        ({**SOUND, "control-mean": POINT}, "'control-mean' as float32 (2,)"),
        ({**SOUND, "control-mean": MEAN[:, None]}, "'control-mean' as float32 (3, 1)"),
        ({**SOUND, "control-point": np.zeros(2)}, "'control-point' as float64 (2,)"),
        (
            {**SOUND, "control-mean": np.float32([0, math.nan, 0])},
            "'control-mean' with 1 of 3 values that are not finite",
        ),
        (
            {**SOUND, "control-point": np.float32([0, -2 * GREATEST_CONTROL])},
            "'control-point' with 1 of 2 values outside [-1e+12, 1e+12]",
        ),
    ],
)
def test_anything_else_is_refused_before_training(sent: Any, problem: str) -> None:
    said = reason(wire.vectors_to_arrays(sent))
    assert said.startswith("RunError: the server has sent")
    assert problem in said


def test_what_is_no_array_is_refused_in_words() -> None:
    broken = ArrayRecord({"control-mean": Array("float32", (3,), "numpy.ndarray", b"nothing")})
    assert "RunError: the server has sent" in reason(broken)
    assert "holds no arrays" in reason(ConfigRecord({"control-mean": 1.0}))
