"""What clients are sent, and what they take from a server."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployment_grid import DeploymentGrid
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from masked_federation import MASKED, SIZES, MaskedNodes, Run
from small_federation import arguments, make_app, make_grid, make_training_app

from bfl.configuration import resolve
from bfl.errors import ConfigurationError, RunError
from bfl.evaluation.precision_spread import DISTANCE, SPREAD
from bfl.federation.wire import (
    ARRAYS,
    CONFIG,
    posterior_from_arrays,
    posterior_to_arrays,
    reply_content,
)
from bfl.learning.training import LocalResult, LocalTask
from bfl.learning.training.trainer import LocalTrainer
from bfl.posteriors import Posterior
from clients import client_app
from strategies import LogLinearPool, make_strategy
from strategies.application.pretraining import configuration_of_pretraining
from strategies.application.run import run_federation
from strategies.method import RunSupport


def test_no_file_of_the_server_is_named_in_a_task(tmp_path: Path) -> None:
    sent = []

    def reply(task: Any, received: Posterior) -> Any:
        sent.append(task)
        return reply_content(received, {"num-examples": 3})

    given = {"output-dir": str(tmp_path), "server-data": f"npz:{tmp_path}/x"}
    configuration = resolve(given, check_data=False, check_parts=False)
    run = RunSupport(folder=str(tmp_path / "run"))
    strategy = make_strategy(configuration, 10, [np.arange(3), np.arange(3)], run=run)
    initial = Posterior(np.zeros(2, np.float32), np.ones(2, np.float32), np.ones(1, np.float32))
    for simulated in (False, True):
        sent.clear()
        grid = make_grid(make_app(reply, noise_anew=not simulated), 2)
        strategy.start(grid, posterior_to_arrays(initial), num_rounds=1)
        assert len(sent) == 2
        for task in sent:
            assert str(tmp_path) not in task.configuration
            assert task.run_folder == (str(tmp_path / "run") if simulated else "")


@pytest.mark.parametrize("exchange", ["direct", "masked"])
def test_where_the_runs_data_lie_is_told_to_nodes_alone_that_look_there(
    exchange: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = tmp_path / "secret-folder"
    server.mkdir()
    labels = np.arange(40) % 10
    images = np.zeros((40, 8, 8), np.uint8)
    there = {"x_train": images, "y_train": labels, "x_test": images[:2], "y_test": labels[:2]}
    own = tmp_path / "own.npz"
    for path in (server / "mine.npz", own):
        np.savez(path, **there)

    def train_nothing(_: LocalTrainer, images: Any, labels: Any, task: LocalTask) -> LocalResult:
        return LocalResult(task.received, 1.0, 1.0, 0.0, {}, 1, np.ones(1, bool))

    monkeypatch.setattr(LocalTrainer, "train", train_nothing)
    monkeypatch.setattr("strategies.application.final_evaluation.draw_all", lambda folder: [])
    sent: dict[str, list[str]] = {}

    def on_client(message: Message, context: Context) -> Message:
        said = [str(dict(r)) for r in message.content.values() if isinstance(r, ConfigRecord)]
        sent.setdefault(message.metadata.message_type, []).append(" ".join(said))
        asked.setdefault(context.node_id, []).extend(said)
        return client_app.app(message, context)

    def told(*nodes: dict[str, Any]) -> list[bool]:
        """Make a run; return which nodes are told where the server's files are."""
        sent.clear()
        asked.clear()
        grid = DeploymentGrid(on_client, [], len(nodes))  # type: ignore[arg-type]
        for partition_id, config in enumerate(nodes):
            grid.start(partition_id, **config)
        values = {"model": "mlp", "dataset": f"npz:{server}/mine.npz", "data-dir": str(server)}
        values |= {"rounds": 1, "evaluate-every": 0, "mc-samples": 1}
        values |= {"exchange": exchange, "node-timeout": 10.0}
        values["output-dir"] = str(tmp_path / "runs")
        run = run_federation(grid, resolve(values))
        assert len(run.rounds()) == 1
        assert run.rounds()[0]["clients"] == len(nodes)
        kinds = {"query", "train"}
        assert sent.keys() >= (kinds if exchange == "direct" else {*kinds, "train.unmask"})
        return [any(server.name in text for text in asked[node]) for node in sorted(asked)]

    asked: dict[int, list[str]] = {}
    has_own, looks = {"dataset": f"npz:{own}"}, {"allow-run-paths": True}
    both = {**has_own, **looks}
    assert told(has_own, has_own, looks, both) == [False, False, True, False]


def test_runs_that_differ_in_what_tempers_an_objective_begin_alike() -> None:
    plain, tempered = (
        configuration_of_pretraining(resolve(given, check_data=False))
        for given in ({}, {"temperature": 0.1, "local-lr-decay": 0.5})
    )
    assert tempered.values == plain.values
    assert (tempered.keys.temperature, tempered.keys.local_lr_decay) == (1.0, 1.0)


START = Posterior(np.full(3, 0.5, np.float32), np.full(3, 4.0, np.float32), np.ones(2, np.float32))
MEAN = {"inference": "flipout", "broadcast": "mean", "start": "mean"}


def test_a_broadcast_mean_holds_no_variance_and_clients_send_theirs_back():
    seen, rounds = [], []

    def train(message, context):
        arrays = message.content[ARRAYS]
        seen.append(sorted(arrays))
        received = posterior_from_arrays(arrays, variance=0.25)
        np.testing.assert_array_equal(received.variance, np.full(3, 0.25))
        client = int(context.node_config["partition-id"])
        sent = Posterior(
            received.mean + np.float32(client), np.full(3, 0.5 + client, np.float32), received.point
        )
        return reply_content(sent, {"num-examples": 10})

    grid = make_grid(make_training_app(train), 2)
    strategy = LogLinearPool(**arguments(broadcast="mean", clients=2, on_round=rounds.append))
    result = strategy.start(grid, posterior_to_arrays(START), num_rounds=2)
    assert seen == [["mean", "point"]] * 4
    pooled = posterior_from_arrays(result.arrays)
    # Precisions 2 and 2/3 of equal weight: the mean moves by 1/4 a round.
    np.testing.assert_allclose(pooled.mean, START.mean + 0.5, rtol=1e-6)
    np.testing.assert_allclose(pooled.variance, 0.75, rtol=1e-6)
    for finished in rounds:
        assert finished.metrics[SPREAD] == pytest.approx(np.log(3) / 2, rel=1e-6)
        assert finished.metrics[DISTANCE] == pytest.approx(0.5, rel=1e-5)


def test_by_default_all_is_sent_and_a_record_without_variances_is_none():
    assert sorted(posterior_to_arrays(START)) == ["mean", "point", "variance"]
    with pytest.raises(KeyError, match="variance"):
        posterior_from_arrays(posterior_to_arrays(START, ("mean", "point")))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inference": "deterministic", "pooling": "nwa"}, "needs Gaussian posteriors"),
        ({"start": "posterior"}, "start 'posterior' needs clients that are sent variances"),
        ({"prior": "previous-global"}, "prior 'previous-global' needs clients that are sent"),
        ({"objective": "elbo+proximal"}, "objective 'proximal' needs clients that are sent"),
        ({"strategy": "pvi"}, "prior 'cavity' .* needs clients that are sent variances"),
    ],
)
def test_what_needs_variances_goes_with_no_broadcast_mean(changes, message):
    assert resolve(MEAN).broadcast.name == "mean"
    with pytest.raises(ConfigurationError, match=message):
        resolve({**MEAN, **changes})


VICTIM = 2
Lie = Callable[[Any], None]


def another_posterior(content: Any) -> None:
    mean = content[ARRAYS]["mean"].numpy()
    content[ARRAYS] = ArrayRecord({**content[ARRAYS], "mean": Array(mean + np.float32(1e-3))})


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


@pytest.mark.parametrize("lie", [another_posterior, another_configuration, another_total])
def test_a_client_that_is_told_something_else_stays_masked_and_says_so(lie: Lie) -> None:
    warnings: list[str] = []
    with pytest.raises(RunError, match="only the clients' sum is known"):
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
