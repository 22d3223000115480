"""A ServerApp of one's own and clients of any framework: docs/wire-format.md, run as it stands."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from small_federation import arguments, make_app, make_grid

import strategies
from bfl.errors import BflError, ConfigurationError
from bfl.federation.secure_aggregation.messages import Delivery, MaskedTask
from bfl.federation.wire import (
    WIRE_FORMAT,
    TrainTask,
    posterior_from_arrays,
    posterior_to_arrays,
    reply_content,
)
from bfl.posteriors import Posterior

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "wire-format.md"
CLIENT, SERVER = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
CLIENTS = 4


def client_module() -> dict[str, Any]:
    module: dict[str, Any] = {"__name__": "numpy_client"}
    exec(compile(CLIENT, "numpy_client.py", "exec"), module)
    return module


def exact() -> Posterior:
    """Return the posterior of all clients' data, in closed form."""
    module = client_module()
    grid = make_grid(module["app"], CLIENTS)
    data = np.concatenate([module["own_data"](context) for context in grid._contexts.values()])
    precision = 1 / 100 + len(data) / module["NOISE"]
    return Posterior(data.sum(axis=0) / module["NOISE"] / precision, np.full(2, 1 / precision))


def prior(points: int = 0) -> Posterior:
    size = np.zeros(2, np.float32)
    return Posterior(size, size + 100, np.ones(points, np.float32))


def test_the_page_says_which_version_it_is_and_names_what_a_masked_task_has() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"^# The wire format, version (\d+)$", text, re.MULTILINE) == [
        f"{WIRE_FORMAT}"
    ]
    said = re.findall(r"wire-format[`\"]: (\d+)", text)
    assert said == [f"{WIRE_FORMAT}"] * 2, "in the table, and in the client"
    own = {field.name for field in fields(MaskedTask)} - {field.name for field in fields(Delivery)}
    (named,) = re.findall(r"the fields of `MaskedTask` .*?\.\n", text, re.DOTALL)
    assert own <= set(re.findall(r"`(.*?)`", named))


def test_the_page_gives_the_posterior_of_all_data(capsys: pytest.CaptureFixture[str]) -> None:
    grid = make_grid(client_module()["app"], CLIENTS)
    module: dict[str, Any] = {"__name__": "own_server"}
    exec(compile(SERVER, "own_server.py", "exec"), module)
    context = Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={})
    module["app"](grid, context)
    mean, variance = re.findall(r"\[(.*?)\]", capsys.readouterr().out)
    np.testing.assert_allclose(np.array(mean.split(), float), exact().mean, rtol=1e-5)
    np.testing.assert_allclose(np.array(variance.split(), float), exact().variance, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('"wire-format": 5', '"wire-format": 1'), "a node speaks wire-format 1; this side .* 5"),
        (('"wire-format": 5,', ""), "a node does not say its wire-format"),
        (('"own-examples": len(', '"own-examples": -len('), "own.examples"),
        (('"partition-id": int(', '"partition-id": str('), "partition.id"),
        (('{"config": config}', "{}"), "without a record 'config'"),
    ],
)
def test_nodes_that_speak_otherwise_are_refused(change: tuple[str, str], words: str) -> None:
    text = CLIENT.replace(*change)
    assert text != CLIENT
    module: dict[str, Any] = {"__name__": "numpy_client"}
    exec(text, module)
    with pytest.raises(BflError, match=f"node 1: .*{words}"):
        strategies.Conflation(**arguments(partition=[None] * CLIENTS, node_timeout=0.2)).start(
            make_grid(module["app"], CLIENTS), posterior_to_arrays(prior())
        )


def test_a_task_of_another_version_is_refused() -> None:
    record = TrainTask(1, 0, "{}", 10, None).to_config()
    TrainTask.from_config(record)
    record["wire-format"] = 99
    with pytest.raises(ConfigurationError, match="the server speaks wire-format 99; this side"):
        TrainTask.from_config(record)


def test_train_config_reaches_the_clients() -> None:
    from flwr.app import ConfigRecord

    seen: list[float] = []
    app: ClientApp = make_app()

    def reply(message: Message, context: Context) -> Message:
        config: Any = message.content["config"]
        seen.append(config["temperature"])
        assert TrainTask.from_config(config).num_classes == 10
        arrays: Any = message.content["arrays"]
        content = reply_content(posterior_from_arrays(arrays), {"num-examples": 1})
        return Message(content, reply_to=message)

    other = ClientApp()
    other.query()(lambda message, context: app(message, context))
    other.train()(reply)
    strategy = strategies.Conflation()
    arrays = posterior_to_arrays(prior())
    grid = make_grid(other, 2)
    strategy.start(grid, arrays, 1, train_config=ConfigRecord({"temperature": 0.5}))
    assert seen == [0.5, 0.5]
    with pytest.raises(ConfigurationError, match="train_config has examples, server-round"):
        strategy.start(
            grid, arrays, 1, train_config=ConfigRecord({"server-round": 9, "examples": b""})
        )
