"""Pre-training: when it stops, what it holds out, and runs that begin with it."""

import json
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from small_federation import make_app, make_grid

from bfl.configuration import resolve
from bfl.configuration.component_slots import SLOTS
from bfl.data.datasets import load_dataset
from bfl.data.datasets.subset import train_positions
from bfl.errors import ConfigurationError, NotFiniteError, RunError
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.run.resume import Checkpoints
from bfl.federation.wire import reply_content
from bfl.learning.pretraining import split_off, stop_early
from bfl.learning.priors import NormalPrior
from bfl.posteriors import Manifest, Parameter, Posterior
from clients.state import ClientState
from strategies.application.data import divide
from strategies.application.pretraining import configuration_of_pretraining, pretrain
from strategies.federation import discover


@pytest.mark.parametrize(
    ("accuracies", "patience", "stops"),
    [
        ([0.1], 1, False),
        ([0.2, 0.1], 1, True),
        ([0.2, 0.1], 2, False),
        ([0.2, 0.2, 0.2], 2, True),  # no better is not better
        ([0.1, 0.2, 0.3, 0.2], 2, False),
        ([0.3, 0.1, 0.2, 0.25], 3, True),
    ],
)
def test_stops_after_epochs_without_a_better_one(accuracies, patience, stops):
    assert stop_early(accuracies, patience) is stops


@pytest.mark.parametrize("share", [0.1, 200])
def test_validation_images_are_not_trained_on(share):
    dataset = load_dataset("digits")
    used = np.arange(dataset.train_labels.size)
    train, validation = split_off(dataset, share, 0.1, used)
    chosen = 144 if share < 1 else 200
    assert len(train) + len(validation) == chosen
    assert len(validation) == round(0.1 * chosen)
    assert not set(train) & set(validation)
    assert set(dataset.train_labels[train]) == set(range(10))


def test_no_image_left_is_refused():
    with pytest.raises(ConfigurationError, match="pretrain-examples is 1: of 1 image none is left"):
        split_off(load_dataset("digits"), 1, 0.5, np.arange(20))


def pretrained(
    reply, accuracy=lambda *given: given[-1] / 10, say=lambda line: None, manifest=None, **values
):
    """Pre-train on a node that replies so."""
    grid = make_grid(make_app(reply), 2)
    initial = Posterior(np.zeros(2, np.float32), np.ones(2, np.float32), np.ones(1, np.float32))
    evaluator = SimpleNamespace(manifest=manifest, train_accuracy=accuracy)
    configuration = resolve({"pretrain-examples": 200, **values})
    federation = discover(grid, 2, 10.0)
    begun = SimpleNamespace(
        grid=grid,
        federation=federation,
        configuration=configuration,
        evaluator=evaluator,
        data=divide(configuration, load_dataset("digits"), federation),
        progress=SimpleNamespace(say=say),
        folder="",
        results=SimpleNamespace(path=Path()),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("strategies.application.pretraining.run_key", lambda path: "")
        return pretrain(begun, initial)


def asked_of_the_node(epochs=3, *judging, trained_on=id, **values):
    """Return the configurations that the node of a pre-training of some epochs has been sent."""
    sent = []

    def reply(task, received):
        configuration = resolve(json.loads(task.configuration))
        sent.append(configuration)
        trained_on(task.examples)
        return reply_content(received, {"num-examples": len(task.examples)})

    pretrained(reply, *judging, **{"pretrain-epochs": epochs, **values})
    assert len(sent) == epochs
    return sent


@pytest.mark.parametrize("validation", [0.1, 0.5])
def test_a_share_is_of_the_images_that_clients_have(validation):
    seen, judged = [], []
    shares = {"train-examples": 400, "pretrain-examples": 0.2, "pretrain-validation": validation}
    asked_of_the_node(
        1, lambda *given: judged.append(given[1]) or 0.5, trained_on=seen.append, **shares
    )
    used = set(train_positions(load_dataset("digits"), 400))
    assert len(seen[0]) + len(judged[0]) == 80
    assert len(judged[0]) == 80 * validation
    assert {*seen[0], *judged[0]} <= used


@pytest.mark.parametrize(
    ("variance", "more", "reason"),
    [
        (-1.0, 0, "'norm/moving_variance' has 1 of 1 values below 0"),
        (np.nan, 0, "point has 1 of 1 values that are not finite"),
        (1.0, 1, "num-examples is 181; this client holds 180"),
    ],
)
def test_what_the_node_sends_is_checked_like_an_update(variance, more, reason):

    def reply(task, received):
        point = np.full(1, variance, np.float32)
        posterior = Posterior(received.mean, received.variance, point)
        return reply_content(posterior, {"num-examples": len(task.examples) + more})

    moving = Parameter("norm/moving_variance", (1,), False, "ones", minimum=0.0)
    manifest = Manifest((Parameter("kernel", (2,), True, "zeros"), moving))
    with pytest.raises(RunError, match=f"epoch 1:\nclient 0: .*{reason}"):
        pretrained(reply, manifest=manifest)


@pytest.mark.parametrize("prior", ["fixed", "previous-global"])
def test_prior_is_a_fixed_one_of_its_own(prior):
    """Whatever the run's is; Fischer et al. pre-train one model for the rows of their Table 4."""
    received = Posterior(np.full(2, 7.0), np.full(2, 0.25))
    for sent in asked_of_the_node(prior=prior):
        assert sent.prior.density(received, {}) == NormalPrior(0.0, 10.0)
        assert sent.keys.local_epochs == 1


def test_nothing_of_the_method_takes_part_in_pretraining():
    kept = {"model", "inference", "optimizer", "augmentation", "pooling"}
    clients = [kind for kind in SLOTS if not kind.server_only]
    others = {
        kind.key: next(n for n in (c.name for c in kind.registry.classes()) if n != kind.default)
        for kind in clients
        if kind.key != "model"
    }
    given = {**others, "model": "mlp"}
    configuration = resolve(given, check_data=False, check_parts=False)
    sent = configuration_of_pretraining(configuration)
    for kind in clients:
        expected = configuration.words[kind.key] if kind.key in kept else kind.default
        assert (kind.key, sent.words[kind.key]) == (kind.key, expected)
        names = "+".join(part.name for part in sent.picked(kind))
        assert (kind.key, names) == (kind.key, expected)
    assert resolve(sent.values, check_data=False, check_parts=False) == sent


def test_of_logits_that_are_not_finite_none_is_correct():
    epochs = []
    judge = Mock(side_effect=[0.5, NotFiniteError(3, 5), 0.5])
    asked_of_the_node(3, judge, epochs.append)
    assert [line.rpartition(" ")[-1] for line in epochs] == ["0.5000", "0.0000", "0.5000"]


def test_the_learning_rate_does_not_decay():
    values = {"lr-decay": 0.5, "lr-silent-rounds": 2}
    rates = [
        sent.schedule.learning_rate(sent.keys.learning_rate, epoch, sent.keys.rounds)
        for epoch, sent in enumerate(asked_of_the_node(5, **values), start=1)
    ]
    np.testing.assert_allclose(rates, 1e-3)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return what makes runs of one round on few digits, and gives their folders."""
    from bfl.engine.flower.app import FlowerApp, run_serially

    root = Path(__file__).resolve().parent.parent.parent
    output = tmp_path_factory.mktemp("runs")

    def make(name, **more):
        values = {"model": "mlp", "inference": "deterministic", "strategy": "nwa", "clients": 2}
        values |= {"train-examples": 300, "test-examples": 100, "rounds": 1, "local-epochs": 1}
        values |= {"learning-rate": 0.003, "output-dir": str(output), "name": name}
        values |= {key.replace("_", "-"): value for key, value in more.items()}
        run_serially(FlowerApp.read(root), values, 2, {})
        return RunFolder(output / name)

    return make


PRETRAINING = {"pretrain_examples": 0.5, "pretrain_epochs": 5}


@pytest.mark.slow
def test_run_begins_with_the_best_epoch(run, capsys):
    values = {"model": "resnet8", **PRETRAINING}
    folder = run("with", **values)
    said = capsys.readouterr().out
    assert said.count("pre-training, epoch ") == 5
    # After one round on 300 images alone it is chance, 0.1.
    assert folder.metrics()["accuracy"] > 0.4
    digest = folder.posterior()[0].digest()

    # Killed in its first round, it goes on with what pre-training has given.
    assert Checkpoints(folder).latest().server_round == 1
    [checkpoint] = (folder.path / "checkpoints").glob("round-000001.*.snapshot")
    for path in (folder.path / "metrics.json", folder.path / "posterior.npz", checkpoint):
        path.unlink()
    again = run("with", **values, resume=True)
    assert "pre-training, epoch" not in capsys.readouterr().out
    assert again.posterior()[0].digest() == digest


@pytest.mark.slow
def test_killed_in_its_eighth_epoch_it_ends_as_if_nothing_had_happened(run, monkeypatch):
    values = {"pretrain_examples": 0.2, "pretrain_epochs": 9, "pretrain_patience": 9}
    whole = run("whole", **values)
    accuracies = []

    def killed(accuracies_so_far, patience):
        accuracies.append(accuracies_so_far[-1])
        if len(accuracies_so_far) == 8:
            raise InterruptedError
        return False

    with monkeypatch.context() as patch:
        patch.setattr("strategies.application.pretraining.stop_early", killed)
        with pytest.raises(InterruptedError):
            run("killed", **values)
    begun_with = []
    original = ClientState.restore

    def restore(self, task):
        state = original(self, task)
        begun_with.append(int(state["optimizer.steps"]) if state else 0)
        return state

    monkeypatch.setattr(ClientState, "restore", restore)
    again = run("killed", **values, resume=True)
    # A fifth of the 300 images that clients have, without a tenth of these, in batches of 32.
    assert begun_with == [2 * epoch for epoch in range(9)]
    # The virtual client keeps it beside the others', which keep none.
    assert [path.name for path in (again.path / "clients").iterdir()] == ["client-000002"]
    assert again.rounds()[-1]["posterior-sha256"] == whole.rounds()[-1]["posterior-sha256"]
    assert again.posterior()[0].digest() == whole.posterior()[0].digest()
