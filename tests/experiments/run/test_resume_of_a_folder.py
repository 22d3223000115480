"""What a resume does to the folder of a run: nothing is lost that it cannot make again."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bfl.configuration import Configuration, resolve
from bfl.errors import ConfigurationError
from bfl.experiments.results.identity import locked, run_key
from bfl.experiments.results.run_folder import METRICS, POSTERIOR, RunFolder
from bfl.experiments.run.resume import Checkpoint, Checkpoints, check_output, open_run
from bfl.experiments.run.simulation import remove_run
from bfl.posteriors import Manifest, Posterior

ROUNDS = 3
EMPTY = np.zeros(0, np.float32)


def configured(place: Path, **changes: Any) -> Configuration:
    given = {"output-dir": str(place), "name": "run", "rounds": ROUNDS, **changes}
    return resolve(given, check_data=False)


def posterior_of(server_round: int) -> Posterior:
    return Posterior(EMPTY, EMPTY, np.full(1, server_round, np.float32))


def interrupted_run(place: Path) -> RunFolder:
    """Return a run that has made its rounds and not come to its end."""
    with open_run(configured(place), "run", {}) as (folder, _):
        for number in range(1, ROUNDS + 1):
            folder.append_round({"round": number, "accuracy": 0.9})
            Checkpoints(folder).save(Checkpoint(number, posterior_of(number), {}))
    return folder


def finished_run(place: Path) -> RunFolder:
    folder = interrupted_run(place)
    folder.write_posterior(posterior_of(ROUNDS), Manifest(()))
    folder.write_figure("learning-curve.png", b"image")
    folder.append_warning("final evaluation: the posterior is narrow")
    folder.write_metrics({"accuracy": 0.9})
    return folder


def judged(server_round: int) -> dict[str, Any]:
    """Return what a round's record has of clients that have judged their models."""
    numbers = {"meme-accuracy": server_round / 10, "test-examples": 5, "better-accuracy": 0.5}
    return {
        **{f"client/{name}": value for name, value in numbers.items()},
        "per-client": [{"client": 0, "num-examples": 7, "weight": 1.0, **numbers}],
    }


UNJUDGED = {"per-client": [{"client": 0, "num-examples": 7, "weight": 1.0}]}


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize(
    ("every", "rounds", "due"), [(2, 3, [2, 3]), (2, 4, [2]), (0, 4, []), (1, 4, [1, 2, 3])]
)
def test_what_clients_measured_as_in_a_last_round_goes_when_it_is_not_the_last(
    every: int, rounds: int, due: list[int], killed: bool, tmp_path: Path
) -> None:
    """Also where the run is killed as soon as it has been given the rounds."""
    changes: dict[str, Any] = {"evaluated-by": "clients", "evaluate-every": every}
    with open_run(configured(tmp_path, **changes), "run", {}) as (folder, _):
        for number in range(1, ROUNDS + 1):
            was_due = number == ROUNDS or (every and number % every == 0)
            measured = judged(number) if was_due else UNJUDGED
            folder.append_round({"round": number, "accuracy": 0.9, "client/memory": 1, **measured})
            Checkpoints(folder).save(Checkpoint(number, posterior_of(number), {}))
    if killed:
        folder.reconfigure({**folder.config(), "rounds": rounds})
    with open_run(configured(tmp_path, rounds=rounds, resume=True, **changes), "run", {}):
        pass
    assert folder.rounds() == [
        {
            "round": number,
            "accuracy": 0.9,
            "client/memory": 1,
            **(judged(number) if number in due else UNJUDGED),
        }
        for number in range(1, ROUNDS + 1)
    ]


def content(folder: RunFolder) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}


def remove(folder: RunFolder) -> None:
    shutil.rmtree(folder.path / "checkpoints")


def damage(folder: RunFolder) -> None:
    for path in (folder.path / "checkpoints").iterdir():
        path.write_bytes(b"damaged")


@pytest.mark.filterwarnings("ignore:.*is damaged")
@pytest.mark.parametrize(
    ("left", "lose", "rounds"),
    [("all", remove, ROUNDS), ("all", damage, ROUNDS + 2), (POSTERIOR, remove, ROUNDS + 2)],
)
def test_a_finished_run_without_checkpoints_keeps_its_results(
    left: str, lose: Any, rounds: int, tmp_path: Path
) -> None:
    """Whole, or what of it has been kept; a run killed at its end is one of those."""
    folder = finished_run(tmp_path)
    before = content(folder)
    with open_run(configured(tmp_path, resume=True), "run", {}) as (_, checkpoint):
        assert checkpoint is not None, "it goes on with nothing"
    assert content(folder) == before
    lose(folder)
    if left == POSTERIOR:
        (folder.path / METRICS).unlink()
        (folder.path / "rounds.jsonl").unlink()
    before = content(folder)
    wanted = configured(tmp_path, rounds=rounds, resume=True)
    with pytest.raises(ConfigurationError) as caught, open_run(wanted, "run", {}):
        pytest.fail("it goes on")
    said = str(caught.value)
    assert str(folder.path) in said
    assert POSTERIOR in said
    assert "no valid checkpoint" in said
    assert content(folder) == before


def test_an_interrupted_run_without_checkpoints_begins_anew_and_says_so(tmp_path: Path) -> None:
    folder = interrupted_run(tmp_path)
    remove(folder)
    wanted = configured(tmp_path, resume=True)
    with (
        pytest.warns(UserWarning, match="no valid checkpoint; all 3 rounds"),
        open_run(wanted, "run", {}) as (_, checkpoint),
    ):
        assert checkpoint is None
    assert folder.rounds() == []


def test_a_run_without_a_round_starts_anew_under_another_configuration(tmp_path: Path) -> None:
    wanted = configured(tmp_path, resume=True, seed=1)
    with open_run(configured(tmp_path), "run", {}, {"train": "a"}) as (folder, _):
        before = run_key(folder.path)
    (ledger := folder.path / "rounds-begun").write_text("1\n", encoding="ascii")
    with pytest.raises(ConfigurationError, match=r"seed was 0 and is 1.*another name"):
        check_output(wanted)
    ledger.unlink()
    check_output(wanted)
    with open_run(wanted, "run", {}, {"train": "b"}) as (folder, checkpoint):
        assert checkpoint is None
    assert folder.config()["seed"] == 1
    assert folder.read_json("run.json:data") == {"train": "b"}
    assert run_key(folder.path) != before
    folder.append_round({"round": 1})
    with pytest.raises(ConfigurationError, match="seed was 1 and is 0"):
        check_output(configured(tmp_path, resume=True))


def test_a_finished_run_that_goes_back_a_round_is_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it is killed before it has dropped the round."""
    folder = finished_run(tmp_path)
    sorted((folder.path / "checkpoints").iterdir())[-1].write_bytes(b"damaged")
    wanted = configured(tmp_path, resume=True)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("bfl.experiments.results.run_folder.RunFolder.write_rounds", killed)
        with (
            pytest.warns(UserWarning, match="is damaged"),
            pytest.raises(KeyboardInterrupt),
            open_run(wanted, "run", {}),
        ):
            pytest.fail("it goes on")
    assert not folder.final_results()
    with pytest.warns(UserWarning, match="is damaged"), open_run(wanted, "run", {}) as (_, found):
        assert found
    assert found.server_round == ROUNDS - 1
    assert [entry["round"] for entry in folder.rounds()] == [1, 2]
    assert not list(folder.path.glob("figures/*"))
    assert folder.warnings() == []


@pytest.mark.parametrize("lost", [1, 2, ROUNDS])
def test_a_run_whose_record_is_lost_is_not_gone_on_with(lost: int, tmp_path: Path) -> None:
    folder = interrupted_run(tmp_path)
    path = folder.path / "rounds.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    for kept in (lines[: lost - 1] + lines[lost:], [*lines[: lost - 1], b'{"rou'], []):
        path.write_bytes(b"".join(kept))
        if not kept:
            path.unlink()
        before = content(folder)
        with (
            pytest.raises(ConfigurationError, match=r"rounds\.jsonl"),
            open_run(configured(tmp_path, resume=True), "run", {}),
        ):
            pytest.fail("it goes on")
        assert content(folder) == before


def test_a_run_is_overwritten_by_its_name_alone(tmp_path: Path) -> None:
    folder, other = finished_run(tmp_path), tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("no run")
    remove_run(configured(tmp_path, name="other"))
    assert (other / "notes.txt").exists()
    for kept in ({"name": ""}, {"resume": True}):
        with pytest.raises(ConfigurationError, match="overwrite needs"):
            remove_run(configured(tmp_path, **kept))
    with locked(folder.path), pytest.raises(ConfigurationError, match="another server"):
        remove_run(configured(tmp_path))
    assert folder.holds(METRICS)
    remove_run(configured(tmp_path))
    assert not folder.path.exists()
    remove_run(configured(tmp_path))
