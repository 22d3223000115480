"""Whose a run's folder is, and what a resume does to it: nothing is lost."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from bfl.configuration import Configuration, resolve
from bfl.data.partitions.base import describe
from bfl.errors import ConfigurationError, DataError
from bfl.experiments.results.run_folder import (
    FINAL_RESULTS,
    METRICS,
    POSTERIOR,
    RunFolder,
    is_run_key,
    locked,
    partition_digest,
    read_run_key,
    run_key,
    without_numbers,
)
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
    folder.write("figures/learning-curve.png", b"image")
    folder.append_warning("final evaluation: the posterior is narrow")
    folder.write_metrics({"accuracy": 0.9})
    return folder


def content(folder: RunFolder) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}


def remove(folder: RunFolder) -> None:
    shutil.rmtree(folder.path / "checkpoints")


def damage(folder: RunFolder) -> None:
    for path in (folder.path / "checkpoints").iterdir():
        path.write_bytes(b"damaged")


@pytest.mark.filterwarnings("ignore:.*is damaged")
@pytest.mark.parametrize(("left", "lose"), [("all", damage), (POSTERIOR, remove)])
def test_a_finished_run_without_checkpoints_keeps_its_results(
    left: str, lose: Any, tmp_path: Path
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
    wanted = configured(tmp_path, rounds=ROUNDS + 2, resume=True)
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


def test_a_key_that_an_older_version_did_not_have_was_its_default(tmp_path: Path) -> None:
    config = interrupted_run(tmp_path).path / "config.toml"
    lines = config.read_text("utf-8").splitlines(keepends=True)
    config.write_text("".join(line for line in lines if not line.startswith("temperature")))
    check_output(configured(tmp_path, resume=True))
    with pytest.raises(ConfigurationError, match="temperature was"):
        check_output(configured(tmp_path, resume=True, temperature=0.5))


def test_a_finished_run_that_goes_back_a_round_is_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it is killed before it has dropped the round."""
    folder = finished_run(tmp_path)
    sorted((folder.path / "checkpoints").iterdir())[-1].write_bytes(b"damaged")
    wanted = configured(tmp_path, resume=True)
    killed = Mock(side_effect=KeyboardInterrupt)
    with monkeypatch.context() as patch:
        patch.setattr("bfl.experiments.results.run_folder.RunFolder.write_rounds", killed)
        with (
            pytest.warns(UserWarning, match="is damaged"),
            pytest.raises(KeyboardInterrupt),
            open_run(wanted, "run", {}),
        ):
            pytest.fail("it goes on")
    assert not any(map(folder.holds, FINAL_RESULTS))
    with pytest.warns(UserWarning, match="is damaged"), open_run(wanted, "run", {}) as (_, found):
        assert found
    assert found.server_round == ROUNDS - 1
    assert [entry["round"] for entry in folder.rounds()] == [1, 2]
    assert not list(folder.path.glob("figures/*"))
    assert folder.warnings() == []


def test_a_run_goes_on_to_as_many_rounds_as_it_has_or_more(tmp_path: Path) -> None:
    folder = finished_run(tmp_path)
    for rounds in (ROUNDS, ROUNDS + 2):
        check_output(configured(tmp_path, resume=True, rounds=rounds))
    with pytest.raises(ConfigurationError, match="rounds was 3 and is 2"):
        check_output(configured(tmp_path, resume=True, rounds=ROUNDS - 1))
    with open_run(configured(tmp_path, resume=True, rounds=ROUNDS + 2), "run", {}) as (_, found):
        assert found
    assert folder.config()["rounds"] == ROUNDS + 2
    assert not any(map(folder.holds, FINAL_RESULTS))
    assert not list(folder.path.glob("figures/*"))


@pytest.mark.parametrize("lost", [1, ROUNDS])
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


HOLD = """
import sys
from pathlib import Path
from bfl.experiments.results.run_folder import locked

with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_run_keeps_its_key_and_another_one_has_its_own(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    key = run_key(tmp_path / "one")
    assert is_run_key(key)
    assert run_key(tmp_path / "one") == read_run_key(tmp_path / "one") == key
    assert run_key(tmp_path / "two") != key
    assert read_run_key(tmp_path / "three") is None


@pytest.mark.parametrize("text", ["", "0" * 31, "0" * 33, "G" * 32, "../" + "0" * 29, "A" * 32])
def test_what_is_no_key(text: str) -> None:
    assert not is_run_key(text)


def test_a_corrupt_key_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "run-key").write_text("../..", encoding="ascii")
    with pytest.raises(DataError, match="run-key is corrupt"):
        run_key(tmp_path)
    assert read_run_key(tmp_path) is None


@pytest.fixture
def other_server(tmp_path: Path):
    """Return a process that holds the lock of the folder ``run``."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process
        process.kill()


def test_two_servers_do_not_write_to_one_run(tmp_path: Path, other_server) -> None:
    before = sorted(tmp_path.rglob("*"))
    configuration = resolve({"output-dir": str(tmp_path), "name": "run", "resume": True})
    with pytest.raises(ConfigurationError) as caught, open_run(configuration, "run", {}):
        pytest.fail("the folder is another server's")
    assert f"process {other_server.pid} on host {os.uname().nodename}" in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


DIGESTS = {"train": 64 * "a", "test": 64 * "b", "server": 64 * "c"}


class KilledError(BaseException):
    """Stands for whatever ends a process."""


def kill_at(patch: pytest.MonkeyPatch, point: int) -> None:
    """End the process before or behind a file's getting its name, the point-th such moment."""
    passed, unlink = 0, Path.unlink

    def pass_on() -> None:
        nonlocal passed
        passed += 1
        if passed >= point:
            raise KilledError

    def around(act: Callable[..., Any]) -> Callable[..., Any]:
        def acted(*given: Any, **more: Any) -> Any:
            pass_on()
            done = act(*given, **more)
            pass_on()
            return done

        return acted

    def tidy_up(path: Path, *, missing_ok: bool = False) -> None:
        if passed < point:  # who is dead tidies up nothing
            unlink(path, missing_ok=missing_ok)

    patch.setattr(os, "link", around(os.link))
    patch.setattr(Path, "replace", around(Path.replace))
    patch.setattr(Path, "unlink", tidy_up)


def content_of_new_run(folder: RunFolder) -> dict[str, Any]:
    """Return what a new run's folder holds; names and places aside."""
    own = ("name", "output-dir", "resume")
    given = folder.read_json("run.json:given")
    assert folder.rounds() == []
    files = {path.name for path in folder.path.iterdir() if path.suffix != ".tmp"}
    return {
        "files": files - {"rounds.jsonl"},
        "config": {k: v for k, v in folder.config().items() if k not in own},
        "given": {k: v for k, v in given.items() if k not in own},
        "environment": folder.read_json("run.json:environment"),
        "data": folder.read_json("run.json:data"),
    }


@pytest.mark.parametrize("resume", [False, True])
def test_a_run_killed_while_its_folder_is_made_begins_again_by_the_same_command(
    tmp_path: Path, resume: bool
) -> None:
    def opened(name: str, resume: bool = resume) -> RunFolder:
        given = {"output-dir": str(tmp_path), "name": name, "resume": resume, "seed": 3}
        configuration = resolve(given)
        check_output(configuration)
        with open_run(configuration, name, {"python": "3"}, DIGESTS) as (folder, checkpoint):
            assert checkpoint is None
            return folder

    whole = content_of_new_run(opened("whole"))
    assert whole["given"] == {"seed": 3}
    assert whole["environment"] == {"python": "3", "plugins": []}
    for point in count(1):
        name = f"killed-{point}"
        try:
            with pytest.MonkeyPatch.context() as patch:
                kill_at(patch, point)
                opened(name)
            break
        except KilledError:
            pass
        # Where the configuration is there, the run has begun, and the same command says how to go
        # on with it.
        begun = (tmp_path / name / "config.toml").exists()
        if begun and not resume:
            with pytest.raises(ConfigurationError, match="resume=true"):
                opened(name)
        assert content_of_new_run(opened(name, resume=resume or begun)) == whole
    # What is known, configuration and digests, each before and behind its naming.
    assert point == 7


def test_a_run_goes_on_with_the_data_that_it_was_begun_with(tmp_path: Path) -> None:
    configuration = resolve({"output-dir": str(tmp_path), "name": "run", "resume": True})

    def opened(data: dict[str, str]) -> None:
        with open_run(configuration, "run", {}, data):
            pass

    opened(DIGESTS)
    opened(DIGESTS)
    for what in ("train", "server"):
        with pytest.raises(ConfigurationError, match=f"other data: {what} data .* dddddddddddd;"):
            opened({**DIGESTS, what: 64 * "d"})
    opened(DIGESTS)
    # One that was killed early says nothing of its data, and does from now on.
    RunFolder(tmp_path / "run").write_json("run.json", {"environment": {}})
    opened({**DIGESTS, "test": 64 * "e"})
    with pytest.raises(ConfigurationError, match="on other data: test data"):
        opened(DIGESTS)


def test_the_servers_own_images_stay_its_own(tmp_path: Path) -> None:
    """Also where no client has images of the run's; a run that has made no round may change."""
    configuration = resolve({"output-dir": str(tmp_path), "name": "run", "resume": True})

    def opened(digest: str) -> RunFolder:
        partition = {"client_sha256": [], "sha256": "e" * 64, "server": {"sha256": digest}}
        with open_run(configuration, "run", {}, None, partition) as (folder, _):
            folder.write_json("run.json:partition", partition)
            return folder

    opened(64 * "a")
    folder = opened(64 * "b")
    folder.append_round({"round": 1})
    Checkpoints(folder).save(Checkpoint(1, Posterior(np.zeros(1), np.ones(1)), {}))
    with pytest.raises(ConfigurationError, match=r"the server's images .* bbbb"):
        opened(64 * "a")
    assert opened(64 * "b").read_json("run.json:partition")["server"] == {"sha256": 64 * "b"}


def test_a_killed_server_lets_go(tmp_path: Path, other_server) -> None:
    other_server.send_signal(signal.SIGKILL)
    other_server.wait()
    with locked(tmp_path / "run"):
        text = (tmp_path / "run" / "run.lock").read_text(encoding="utf-8")
    assert text.startswith(f"process {os.getpid()} on")


def test_a_private_runs_partition_is_known_again_without_its_numbers() -> None:
    parts = [np.arange(3), np.arange(3, 7)]
    described = describe(np.arange(7) % 2, parts, 2)
    said = without_numbers(described)
    assert partition_digest(said) == partition_digest(described)
    assert said["sha256"] == described["sha256"]
    assert not {"num_examples", "class_counts", "client_sha256"} & said.keys()
    other = describe(np.arange(7) // 4, parts, 2)
    assert partition_digest(without_numbers(other)) != partition_digest(described)
