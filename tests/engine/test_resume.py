"""A run that is interrupted and gone on with ends as if nothing had happened."""

from pathlib import Path
from typing import Any

import pytest
from runs_in_process import ROOT, KilledError, history, make_run

from bfl.commands.flower_simulation import main
from bfl.errors import ConfigurationError
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.run.resume import Checkpoints
from strategies.application import rounds

ROUNDS = 4
VALUES: dict[str, Any] = {
    "model": "mlp",
    "rounds": ROUNDS,
    "closing": "none",
    "local-epochs": 1,
    "mc-samples": 2,
    "evaluate-mc-samples": 1,
    "strategy": "ppa",
    "fraction-train": 0.67,
    "partition": "dirichlet",
    "alpha": 1.0,
    # Rates and images that differ from round to round.
    "lr-silent-rounds": 0,
    "lr-decay": 0.5,
    "augmentation": "crop-flip",
}

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("undrawn_figures")]


def run(folder: Path, **changes: Any) -> RunFolder:
    return make_run(VALUES, 3, folder, **changes)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return run(tmp_path_factory.mktemp("runs") / "uninterrupted")


@pytest.fixture(scope="module")
def uninterrupted_with_states(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The same run with clients that keep their optimizer's state."""
    return run(tmp_path_factory.mktemp("runs") / "with-states", **{"optimizer-state": "keep"})


def same(folder: RunFolder, uninterrupted: RunFolder) -> bool:
    return (
        history(folder) == history(uninterrupted)
        and folder.posterior()[0].digest() == uninterrupted.posterior()[0].digest()
        and folder.metrics() == uninterrupted.metrics()
    )


def interrupt(
    monkeypatch: pytest.MonkeyPatch, folder: Path, after: int, where: str, **changes: Any
) -> None:
    """Run until a round is over, its record written or its checkpoint too, and stop there."""
    target = {
        "record": (rounds.files.RunFolder, "append_round", lambda args: args[1]["round"]),
        "checkpoint": (rounds.Checkpoints, "save", lambda args: args[1].server_round),
    }[where]
    cls, name, number_of = target
    original = getattr(cls, name)

    def stop(*args: Any) -> None:
        original(*args)
        if number_of(args) == after:
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(cls, name, stop)
        with pytest.raises(KilledError):
            run(folder, **changes)


@pytest.mark.parametrize(("after", "where"), [(1, "record"), (3, "checkpoint"), (ROUNDS, "record")])
def test_an_interrupted_run_ends_as_if_nothing_had_happened(
    after: int,
    where: str,
    uninterrupted: RunFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interrupt(monkeypatch, tmp_path / "run", after, where)
    assert same(run(tmp_path / "run", resume=True), uninterrupted)


@pytest.mark.parametrize(("damaged", "goes_on_with"), [(1, 3), (2, 1)])
def test_damaged_checkpoints_cost_their_rounds_and_no_more(
    damaged: int,
    goes_on_with: int,
    uninterrupted: RunFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first checkpoint of the new try is there to go on from, beside the damaged ones."""
    interrupt(monkeypatch, tmp_path / "run", 3, "checkpoint")
    kept = sorted((tmp_path / "run" / "checkpoints").iterdir())
    assert len(kept) == 2
    for path in kept[-damaged:]:
        path.write_bytes(path.read_bytes()[:-100])
    with pytest.warns(UserWarning, match="round-000003.* is damaged"):
        interrupt(monkeypatch, tmp_path / "run", goes_on_with, "checkpoint", resume=True)
    latest = Checkpoints(RunFolder(tmp_path / "run")).latest()
    assert latest is not None
    assert latest.server_round == goes_on_with
    assert same(run(tmp_path / "run", resume=True), uninterrupted)


def test_a_second_server_is_refused_while_the_first_one_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = []
    append = rounds.files.RunFolder.append_round

    def second_server(*args: Any) -> None:
        append(*args)
        if not refused:
            with pytest.raises(ConfigurationError) as caught:
                run(tmp_path / "run", resume=True)
            refused.append(str(caught.value))

    with monkeypatch.context() as patch:
        patch.setattr(rounds.files.RunFolder, "append_round", second_server)
        folder = run(tmp_path / "run", rounds=2)
    assert "another server writes to" in refused[0]
    assert [entry["round"] for entry in folder.rounds()] == [1, 2]


def test_another_configuration_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt(monkeypatch, tmp_path / "run", 1, "checkpoint")
    arguments = ["--app", str(ROOT), "--resume", str(tmp_path / "run"), "--run-config"]
    assert main([*arguments, "alpha=2.0 seed=1"]) == 2
    assert "seed was 0 and is 1; alpha was 1.0 and is 2.0" in capsys.readouterr().err
    assert len(RunFolder(tmp_path / "run").rounds()) == 1


@pytest.mark.parametrize("state", ["reset", "keep"])
def test_a_finished_run_with_more_rounds_is_the_longer_run(
    uninterrupted: RunFolder, uninterrupted_with_states: RunFolder, tmp_path: Path, state: str
) -> None:
    """Bit for bit; the learning rate's schedule does not know how many rounds there are to be.

    ``resume`` begins a run that has not begun, and repeats nothing of one that is over.
    """
    whole = uninterrupted_with_states if state == "keep" else uninterrupted
    shorter = run(tmp_path / "run", rounds=2, resume=True, **{"optimizer-state": state})
    assert len(shorter.rounds()) == 2
    shorter.write_json("run.json:environment", {"ended": ""})
    arguments = ["--app", str(ROOT), "--backend", "serial", "--resume", str(shorter.path)]
    assert main([*arguments, "--run-config", f"rounds={ROUNDS}"]) == 0
    assert shorter.config()["rounds"] == ROUNDS
    assert same(shorter, whole)
    before, made = shorter.rounds(), shorter.read_json("run.json:environment")
    assert made["ended"]
    shorter.write_json("run.json:environment", {"ended": "then"})
    assert same(run(shorter.path, resume=True, **{"optimizer-state": state}), whole)
    assert shorter.rounds() == before  # the seconds, too
    assert shorter.read_json("run.json:environment") == {"ended": "then"}


def test_an_interrupted_run_is_finished_with_the_rounds_that_it_has(
    uninterrupted: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And takes the others later, to the same end."""
    folder = RunFolder(tmp_path / "run")
    interrupt(monkeypatch, folder.path, 3, "checkpoint")
    arguments = ["--app", str(ROOT), "--backend", "serial", "--resume", str(folder.path)]
    assert main([*arguments, "--run-config", "rounds=3"]) == 0
    assert folder.config()["rounds"] == 3
    assert folder.posterior()[0].digest() == uninterrupted.rounds()[2]["posterior-sha256"]
    assert "accuracy" in folder.metrics()
    assert main([*arguments, "--run-config", f"rounds={ROUNDS}"]) == 0
    assert same(folder, uninterrupted)


def test_a_named_run_is_repeated_under_another_name(
    uninterrupted: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    config = str(uninterrupted.path / "config.toml")
    arguments = ["--app", str(ROOT), "--backend", "serial", "--run-config", config]
    assert main([*arguments, "--name", "again"]) == 0
    assert same(RunFolder(uninterrupted.path.parent / "again"), uninterrupted)
    assert main([*arguments, "--name", "again"]) == 2
    assert "holds another run" in capsys.readouterr().err
    assert main(["--resume", str(uninterrupted.path), "--name", "again"]) == 2
    assert "no --name" in capsys.readouterr().err


@pytest.mark.parametrize("where", ["record", "checkpoint"])
def test_clients_that_keep_a_state_are_resumed_as_well(
    where: str,
    uninterrupted: RunFolder,
    uninterrupted_with_states: RunFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also when the server falls back by one more round than the clients."""
    kept, whole, reset = {"optimizer-state": "keep"}, uninterrupted_with_states, uninterrupted
    interrupt(monkeypatch, tmp_path / "run", 3, where, **kept)
    if where == "checkpoint":
        sorted((tmp_path / "run" / "checkpoints").iterdir())[-1].write_bytes(b"damaged")
        with pytest.warns(UserWarning, match="is damaged"):
            resumed = run(tmp_path / "run", resume=True, **kept)
    else:
        resumed = run(tmp_path / "run", resume=True, **kept)
    assert same(resumed, whole)
    assert history(reset)[0] == history(whole)[0]  # the first round begins anew either way
    assert history(reset)[-1] != history(whole)[-1]
