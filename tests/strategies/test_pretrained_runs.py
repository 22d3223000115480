"""Whole runs that begin with pre-training, killed in it as well."""

import pytest

from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.run.resume import Checkpoints
from clients.state import StateInFolder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return what makes runs of one round on few digits, and gives their folders."""
    from pathlib import Path

    from bfl.engine.flower import FlowerApp, run_serially

    root = Path(__file__).resolve().parent.parent.parent
    output = tmp_path_factory.mktemp("runs")

    def make(name, **more):
        values = {
            "model": "mlp",
            "inference": "deterministic",
            "strategy": "nwa",
            "train-examples": 300,
            "test-examples": 100,
            "rounds": 1,
            "local-epochs": 1,
            "learning-rate": 0.003,
            "clients": 2,
            "output-dir": str(output),
            "name": name,
        }
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
def test_runs_that_differ_in_their_prior_begin_with_the_same_posterior(run):
    """And not with the one that the run's prior would have given."""
    begun = {}
    for name, more in {
        "fixed": {},
        "previous": {"prior": "previous-global"},
        "old": {"prior": "previous-global", "pretrain_prior": "previous-global"},
    }.items():
        settings = {"inference": "flipout", "pretrain_mc_samples": 2, **PRETRAINING, **more}
        folder = run(f"prior-{name}", **settings, evaluate_every=0, mc_samples=1)
        assert Checkpoints(folder).latest().server_round == 1
        [checkpoint] = (folder.path / "checkpoints").glob("round-000001.*.snapshot")
        checkpoint.unlink()
        begun[name] = Checkpoints(folder).latest()
    assert {checkpoint.server_round for checkpoint in begun.values()} == {0}
    digests = {name: checkpoint.posterior.digest() for name, checkpoint in begun.items()}
    assert digests["fixed"] == digests["previous"] != digests["old"]
    # N(0, 100) pulls on every standard deviation, the epoch before on none.
    spread = {name: begun[name].posterior.degree_of_spread for name in begun}
    assert spread["fixed"] > 1.02 * spread["old"]


@pytest.mark.slow
def test_killed_in_its_eighth_epoch_it_ends_as_if_nothing_had_happened(run, monkeypatch):
    """Each epoch of the new try has the optimizer's state, beside what the old one has left."""
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
    original = StateInFolder.take_up

    def take_up(self, pooled_round, server_round):
        state = original(self, pooled_round, server_round)
        begun_with.append(int(state["optimizer.steps"]) if state else 0)
        return state

    monkeypatch.setattr(StateInFolder, "take_up", take_up)
    again = run("killed", **values, resume=True)
    # A fifth of the 300 images that clients have, without a tenth of these, in batches of 32.
    assert begun_with == [2 * epoch for epoch in range(9)]
    # The virtual client keeps it beside the others', which keep none.
    assert [path.name for path in (again.path / "clients").iterdir()] == ["client-000002"]
    assert again.rounds()[-1]["posterior-sha256"] == whole.rounds()[-1]["posterior-sha256"]
    assert again.posterior()[0].digest() == whole.posterior()[0].digest()
