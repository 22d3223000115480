"""What a run refuses or warns of before its first round."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from deployment_grid import FIRST_ID, DeploymentGrid
from flwr.app import RecordDict
from small_federation import make_app, make_grid

import bfl.keras
from bfl.configuration import resolve
from bfl.data.datasets import Dataset, load_dataset
from bfl.errors import ConfigurationError, DataError, RunError
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.run.resume import Checkpoint
from bfl.federation.wire import TrainTask, reply_content
from bfl.posteriors import Manifest, Parameter, Posterior
from clients.client_app import app
from strategies.application import data, evaluation
from strategies.application.evaluation import start_tensorflow
from strategies.application.rounds import FederationRun
from strategies.application.run import check_attackers, check_states, run_federation
from strategies.federation import Federation, discover

HOSTILE: dict[str, Any] = {"attack": "noise", "attackers": 2}


def federation(*configs: dict[str, Any]) -> Federation:
    grid = DeploymentGrid(app, [], len(configs))
    for partition_id, config in enumerate(configs):
        grid.start(partition_id, **config)
    return discover(grid, 0, timeout=10.0, poll=0.001)


def test_only_simulated_clients_play_hostile_ones() -> None:
    simulated = federation({"simulation": True}, {"simulation": True})
    with pytest.raises(ConfigurationError, match="only simulated clients play hostile ones"):
        check_attackers(resolve(HOSTILE), federation({}, {}))
    check_attackers(resolve(HOSTILE), simulated)
    check_attackers(resolve({"attackers": 2}), federation({}, {}))


def test_a_refused_run_leaves_nothing(tmp_path: Path, tensorflow: Any) -> None:
    grid = DeploymentGrid(app, range(2), 2)
    values = {**HOSTILE, "model": "mlp", "output-dir": str(tmp_path), "name": "run"}
    with pytest.raises(ConfigurationError, match="attack is 'noise' with attackers = 2"):
        run_federation(grid, resolve(values))
    assert {kind for _, kind in grid.asked} == {"query"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "warned"),
    [
        ({"strategy": "hbfl"}, True),
        ({"strategy": "local"}, True),
        ({"strategy": "hbfl", "evaluated-by": "clients"}, False),
        ({}, False),
    ],
)
def test_personal_models_that_nobody_evaluates_are_warned_of(
    changes: dict[str, Any], warned: bool
) -> None:
    configuration = resolve({"dataset": "digits", **changes})
    found = data.warnings_of_data(configuration, load_dataset("digits"))
    assert any("evaluated-by" in warning for warning in found) is warned


@pytest.mark.slow
def test_a_run_holds_its_clients_to_the_networks_minima(tmp_path: Path, tensorflow: Any) -> None:
    def reply(task: TrainTask, received: Posterior) -> RecordDict:
        point = -received.point if task.partition_id == 1 else received.point
        sent = Posterior(received.mean, received.variance, point)
        assert task.examples is not None
        return reply_content(sent, {"num-examples": len(task.examples)})

    values = {"model": "resnet8", "rounds": 1, "mc-samples": 1, "test-examples": 20}
    values["evaluate-every"] = 0
    folder = run_federation(
        make_grid(make_app(reply), 3),
        resolve({**values, "clients": 3, "output-dir": str(tmp_path), "name": "run"}),
    )
    [entry] = folder.rounds()
    assert (entry["refused"], entry["clients"]) == (1, 2)


@pytest.mark.slow
def test_who_sends_ever_larger_values_is_named_and_a_defence_helps(
    tmp_path: Path, tensorflow: Any
) -> None:
    """A client grows within what is plausible, until the pool's logits overflow."""

    def reply(task: TrainTask, received: Posterior) -> RecordDict:
        factor = np.float32(90 if task.partition_id == 2 else 1.01)
        grown = Posterior(received.mean * factor, received.variance, received.point)
        assert task.examples is not None
        return reply_content(grown, {"num-examples": len(task.examples)})

    values = {"model": "mlp", "rounds": 12, "mc-samples": 1, "test-examples": 20, "clients": 4}
    values |= {"train-examples": 200, "output-dir": str(tmp_path), "evaluate-mc-samples": 1}
    values |= {"strategy": "nwa", "weighting": "equal"}
    said = r"farthest from the others, client 2 sent .* begin one without its node, or with def"
    for resume in (False, True):
        again = resolve({**values, "name": "run", "resume": resume})
        with pytest.raises(RunError, match=said):
            run_federation(make_grid(make_app(reply)), again)
    defended = resolve({**values, "name": "defended", "defence": "winsorization"})
    folder = run_federation(make_grid(make_app(reply)), defended)
    assert [entry["refused"] for entry in folder.rounds()] == [0] * 12


def test_states_that_nodes_have_no_place_for_are_refused() -> None:
    keep, reset = resolve({"optimizer-state": "keep"}), resolve({})
    with_states = federation({"state-dir": "/a"}, {"simulation": True})
    without = federation({"state-dir": "/a"}, {})
    check_states(keep, with_states)
    check_states(reset, without)
    with pytest.raises(ConfigurationError, match="partitions 1 have no state-dir"):
        check_states(keep, without)


@pytest.mark.parametrize("missing", ["the run's", "its own"])
def test_a_node_without_the_data_is_refused_at_once(
    missing: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("bfl.data.datasets.hub.load_from_hub", without_network)
    images, labels = np.zeros((40, 28, 28), np.uint8), np.arange(40) % 10
    for folder in ("server", "node"):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "mnist.npz"
        np.savez(path, x_train=images, y_train=labels, x_test=images[:2], y_test=labels[:2])
    grid = DeploymentGrid(app, [], 2)
    grid.start(0, **{"data-dir": str(tmp_path / "node")})
    gone = str(tmp_path / "gone")
    lacks = {"data-dir": gone} if missing == "the run's" else {"dataset": f"npz:{gone}"}
    grid.start(1, **lacks)
    values = {"model": "mlp", "dataset": "mnist", "data-dir": str(tmp_path / "server")}
    values |= {"output-dir": str(tmp_path / "runs"), "node-timeout": 5.0}
    with pytest.raises(ConfigurationError) as caught:
        run_federation(grid, resolve(values))
    which = "the run's data set 'mnist'" if missing == "the run's" else "its own data"
    assert str(caught.value) == (
        f"node {FIRST_ID + 1} (partition 1): {which} are not there; its own log says what is "
        "wrong with them"
    )
    assert gone in capsys.readouterr().err
    assert {kind for _, kind in grid.asked} == {"query"}
    assert not (tmp_path / "runs").exists()


def without_network(*_: object) -> None:
    raise DataError("the hub cannot be reached")


@pytest.mark.parametrize("simulated", [True, False])
def test_a_node_whose_labels_are_none_of_the_runs_is_refused_at_once(
    simulated: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels, words = np.arange(40) % 10, []
    for name in ("sound", "wrong"):
        path = tmp_path / f"{name}.npz"
        labels[7] = 12 if name == "wrong" else 7
        images = np.zeros((40, 8, 8), np.uint8)
        np.savez(path, x_train=images, y_train=labels, x_test=images[:2], y_test=labels[:2])
        words.append(f"npz:{path}")
    grid = DeploymentGrid(app, [], 2)
    for partition_id, word in enumerate(words):
        grid.start(partition_id, dataset=word, **({"simulation": True} if simulated else {}))
    values = {"model": "mlp", "output-dir": str(tmp_path / "runs")}
    with pytest.raises(ConfigurationError) as caught:
        run_federation(grid, resolve(values))
    assert str(caught.value).startswith(f"node {FIRST_ID + 1} (partition 1): ")
    assert {kind for _, kind in grid.asked} == {"query"}
    # A deployment's server learns no range and no path; the node's own log has both.
    told = str(caught.value) if simulated else capsys.readouterr().err
    assert f"{words[1]}: the training labels are from 0 to 12" in told
    if not simulated:
        assert "are none of the run's 10 classes, 0 to 9; its own log" in str(caught.value)
        assert str(tmp_path) not in str(caught.value)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("names", [("b", "a"), ("a", "c")])
def test_a_node_whose_classes_have_another_order_is_refused(
    names: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It would teach the network to take one class for the other; its operator hears of both."""
    monkeypatch.setenv("BFL_CLIENT", "client north")
    images, labels, words = np.zeros((40, 8, 8), np.uint8), np.arange(40) % 2, []
    for number, given in enumerate((("a", "b"), ("a", "b"), names)):
        path = tmp_path / f"{number}.npz"
        own = {"x_train": images, "y_train": labels % len(given)}
        own |= {"x_test": images[:4], "y_test": own["y_train"][:4], "class_names": given}
        np.savez(path, **own)
        words.append(f"npz:{path}")
    grid = DeploymentGrid(app, [], 2)
    for partition_id, word in enumerate(words[1:]):
        grid.start(partition_id, dataset=word)
    values = {"model": "mlp", "output-dir": str(tmp_path / "runs")}
    with pytest.raises(ConfigurationError, match="not the run's, a, b, in this order") as caught:
        run_federation(grid, resolve({**values, "dataset": words[0]}))
    assert str(caught.value).startswith(f"node {FIRST_ID + 1} (partition 1): ")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("client north: ")
    assert "a, b" in line
    assert ", ".join(names) in line


def test_a_run_is_not_gone_on_with_by_another_partition_or_other_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = Manifest((Parameter("dense/kernel", (2,), True, "he-normal"),))
    posterior = Posterior(np.zeros(2), np.ones(2), np.zeros(0))
    begun: list[int] = []

    def killed(self: FederationRun, checkpoint: Checkpoint | None, _: Posterior) -> None:
        """End the run after its first round."""
        begun.append(checkpoint.server_round if checkpoint else 0)
        if checkpoint is None:
            self.results.append_round({"round": 1})
        self.checkpoints.save(Checkpoint(1, posterior, {}))
        raise InterruptedError

    network = SimpleNamespace(initial=posterior, manifest=manifest, predictor=None)
    monkeypatch.setattr(evaluation, "build_network", lambda *_: network)
    monkeypatch.setattr(FederationRun, "make_rounds", killed)
    values = {"dataset": "digits", "rounds": 2, "output-dir": str(tmp_path), "name": "run"}
    first = resolve(values)

    def go_on(rounds: int = 2, nodes: tuple[dict[str, Any], ...] = ({}, {}, {})) -> None:
        grid = DeploymentGrid(app, [], len(nodes))
        for partition_id, config in enumerate(nodes):
            grid.start(partition_id, **config)
        resume = (tmp_path / "run" / "config.toml").exists()
        run_federation(grid, first.replace(resume=resume, rounds=rounds))

    for _ in range(2):
        with pytest.raises(InterruptedError):
            go_on()
    assert begun == [0, 1]
    folder = RunFolder(tmp_path / "run")
    folder.write_metrics({"accuracy": 0.5})
    was = folder.read_json("run.json:partition")

    split = data._split

    def reversed_parts(*given: Any) -> list[Any]:
        return [part[::-1] for part in split(*given)]

    with monkeypatch.context() as patch:
        patch.setattr(Dataset, "test_digest", property(lambda data: 64 * "0"))
        with pytest.raises(ConfigurationError, match="other data: test data"):
            go_on(rounds=3)
    with monkeypatch.context() as patch:
        patch.setattr(data, "_split", reversed_parts)
        with pytest.raises(ConfigurationError, match=r"the positions of the clients' images"):
            go_on(rounds=3)
        assert folder.metrics() == {"accuracy": 0.5}
        assert (folder.config()["rounds"], folder.read_json("run.json:partition")) == (2, was)
        folder.write_json("run.json", {"environment": {}})
        with pytest.raises(InterruptedError):
            go_on()
    assert begun == [0, 1, 1]


DECIDES: dict[str, dict[str, Any]] = {
    "distillation": {"strategy": "fedbe"},
    "v-distillation": {"strategy": "v-distillation"},
    "weights by accuracy": {"strategy": "abavg", "server-data": "held-back"},
    "validation": {"server-data": "held-back"},
    "pre-training": {"pretrain-examples": 60},
}
IDLE: dict[str, dict[str, Any]] = {
    "averaging": {"strategy": "fedavg"},
    "images that nobody looks at": {"server-data": "held-back", "server-labels": False},
    "an ensemble that is watched": {"strategy": "fedavg", "predictive": "ensemble"},
}
TWO: dict[str, Any] = {"server-threads": 2}


class Process:
    """TensorFlow's threads in a process that may use three CPUs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, threads: int | None = None) -> None:
        self.threads, self.operations = threads, 0
        monkeypatch.setattr(bfl.keras, "configure", self.configure)
        monkeypatch.setattr(bfl.keras, "configured_threads", lambda: self.threads)
        monkeypatch.setattr(evaluation, "cpus_of_this_process", lambda: 3)

    def configure(self, threads: int, operations: int = 1) -> None:
        self.threads = self.threads or threads
        self.operations = self.operations or max(operations, threads)


@pytest.mark.parametrize(
    ("values", "of_clients", "threads"),
    [
        *[(values, None, 1) for values in DECIDES.values()],
        *[({**values, **TWO}, None, 2) for values in DECIDES.values()],
        *[(values, 1, 3) for values in IDLE.values()],
        ({**DECIDES["distillation"], **TWO}, 2, 2),
    ],
    ids=str,
)
def test_what_enters_the_result_has_the_configured_threads_and_the_rest_all(
    values: dict[str, Any], of_clients: int | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(monkeypatch)
    start_tensorflow(resolve(values), of_clients)
    assert (process.threads, process.operations) == (threads, 3)


@pytest.mark.parametrize(
    ("before", "of_clients", "said"),
    [
        (2, None, r"computes with 2 threads.*server-threads=2"),
        (None, 2, r"computes with 2 threads.*num_cpus 1 a client"),
        (3, None, r"server-threads=3.* own with BFL_CPUS=1 in"),
    ],
)
def test_other_threads_of_the_same_process_are_refused(
    before: int | None, of_clients: int | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorFlow has one number of them: neither the server nor the clients get the other's."""
    process = Process(monkeypatch, before)
    with pytest.raises(ConfigurationError, match=said):
        start_tensorflow(resolve(DECIDES["distillation"]), of_clients)
    assert process.threads == before
    remedy = {**DECIDES["distillation"], "server-threads": before or of_clients}
    start_tensorflow(resolve(remedy), of_clients)
