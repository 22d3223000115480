"""``bfl.run`` and ``bfl.load``: the keys of the command line, errors as exceptions, notebooks."""

import math
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bfl
from bfl.errors import BflError, ConfigurationError, DataError
from bfl.experiments.results.run_folder import RunFolder
from bfl.posteriors import Posterior

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"stratgy": "conflation"}, "did you mean 'strategy'"),
    ({"backend": "rays"}, "did you mean 'ray'"),
    ({"backend_config": {"client_resource": {}}}, "client_resources"),
    ({"backend_config": {"actor": {1, 2}}}, "backend_config"),
    ({"clients": 1000, "train_examples": 10}, "1000"),
]

AFTER_THE_RESULT = pytest.mark.usefixtures("result", "undrawn_figures")
"""The result's figures are drawn, those of other runs need not be."""


@pytest.mark.parametrize(("keys", "word"), REFUSED, ids=[word for _, word in REFUSED])
def test_wrong_keys_are_exceptions_before_anything_starts(
    keys: dict[str, Any], word: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=word):
        bfl.run(**{"backend": "serial", "output_dir": str(tmp_path / "runs"), **keys})
    assert not (tmp_path / "runs").exists()


def test_a_run_that_has_not_ended_says_where_it_stands(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "run", {"rounds": 7}, {})
    folder.append_round({"round": 2})
    result = bfl.load(tmp_path / "run")
    assert not result.finished
    assert result.rounds == [{"round": 2}]
    for wanted in ("metrics", "posterior"):
        with pytest.raises(DataError, match="round 2 of 7"):
            getattr(result, wanted)


@pytest.mark.slow
def test_an_interrupted_run_predicts_by_its_latest_round(
    result: bfl.Result, tmp_path: Path
) -> None:
    folder = tmp_path / "interrupted"
    shutil.copytree(result.folder, folder)
    for name in ("posterior.npz", "metrics.json"):
        (folder / name).unlink()
    latest = bfl.load(folder, "latest")
    np.testing.assert_array_equal(latest.posterior.variance, result.posterior.variance)
    images = np.zeros((2, 8, 8, 1), np.uint8)
    ours, theirs = (each.predict(images).mean_probability for each in (latest, result))
    np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(DataError, match="latest"):
        bfl.load(folder).predict(images)
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(DataError, match="no round"):
        bfl.load(folder, "latest").predict(images)


@pytest.mark.slow
def test_a_result_holds_what_the_folder_holds(result: bfl.Result, small: dict[str, Any]) -> None:
    folder = RunFolder(result.folder)
    assert result.folder.is_absolute()
    assert result.folder.parent.name == "runs"
    assert result.finished
    assert result.metrics == folder.metrics()
    assert [entry["round"] for entry in result.rounds] == [1, 2]
    assert result.rounds == folder.rounds()
    assert result.posterior.digest() == result.rounds[-1]["posterior-sha256"]
    for client in result.rounds[-1]["per-client"]:  # an epoch in batches of 32
        assert client["train-steps"] == math.ceil(client["num-examples"] / 32)
    assert result.manifest.gaussian_size == result.posterior.size
    assert result.configuration["strategy"] == "conflation"
    assert result.configuration["local-epochs"] == small["local_epochs"]
    assert result.image_shape == (8, 8, 1)
    assert result.class_names == tuple("0123456789")
    figures = {path.stem: path for path in (result.folder / "figures").iterdir()}
    assert {"learning-curve", "retention-curves"} <= figures.keys()
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in figures.values())


@pytest.mark.slow
@AFTER_THE_RESULT
def test_keys_win_over_a_file_and_a_callback_sees_rounds_and_ends_the_run(
    result: bfl.Result, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[int, Any, str]] = []

    def look(number: int, metrics: Any, posterior: Posterior) -> None:
        seen.append((number, metrics["accuracy"], posterior.digest()))
        raise KeyError("enough")

    given = result.folder / "config.toml"
    keys = {"backend": "serial", "output_dir": tmp_path, "name": "own", "verbose": False}
    with pytest.raises(BflError, match=r"look, raised in round 1: KeyError\('enough'\)"):
        bfl.run(given, rounds=np.int64(3), on_round=look, **keys)
    first = result.rounds[0]
    assert seen == [(1, first["accuracy"], first["posterior-sha256"])]
    assert not capfd.readouterr().out
    stopped = bfl.load(tmp_path / "own")
    assert (stopped.configuration["rounds"], stopped.configuration["seed"]) == (3, 5)
    with pytest.raises(ConfigurationError, match="holds another run"):
        bfl.run(given, seed=1, **keys)
    with pytest.raises(BflError):
        bfl.run(given, overwrite=True, strategy="nonesuch", **keys)
    assert len(stopped.rounds) == 1
    again = bfl.run(given, overwrite=True, seed=1, rounds=1, **keys)
    assert again.configuration["seed"] == 1


@pytest.mark.slow
@AFTER_THE_RESULT
def test_two_runs_at_once_in_one_process_are_refused(
    result: bfl.Result, small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would share networks: two threads used to end in two other posteriors, in silence."""
    said: list[str] = []
    keys = {**small, "strategy": "conflation", "output_dir": str(tmp_path)}
    images = np.zeros((1, 8, 8, 1), np.uint8)

    def meanwhile() -> None:
        for use in (lambda: bfl.run(**keys, name="second"), lambda: result.predict(images)):
            with pytest.raises(ConfigurationError) as caught:
                use()
            said.append(str(caught.value))

    append = RunFolder.append_round

    def append_and_try(*args: Any) -> None:
        append(*args)
        thread = threading.Thread(target=meanwhile)
        thread.start()
        thread.join()

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "append_round", append_and_try)
        first = bfl.run(**keys, name="first")
    assert len(said) == 2 * len(first.rounds)
    assert all("another thread of this process makes a run" in text for text in said)
    assert not (tmp_path / "second").exists()
    assert first.posterior.digest() == result.posterior.digest()
    assert len(result.predict(images)) == 1
