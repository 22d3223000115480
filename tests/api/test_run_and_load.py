"""``bfl.run`` and ``bfl.load``: the keys of the command line, errors as exceptions, notebooks."""

import math
import os
import shutil
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bfl
from bfl.configuration.settings import in_sections
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


def test_a_key_of_several_words_takes_a_list() -> None:
    for key, words in (("corruptions", ["noise", "blurr"]), ("closing", ["none", "bayes"])):
        with pytest.raises(ConfigurationError, match=words[1]) as caught:
            bfl.run(**{key: words})
        assert "allowed" in str(caught.value)


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
    assert result.name == result.folder.name
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
    assert result.environment["bfl"] == bfl.__version__
    assert result.environment["started"] <= result.environment["ended"]
    assert result.image_shape == (8, 8, 1)
    assert result.class_names == tuple("0123456789")
    assert {"learning-curve", "retention-curves"} <= result.figures.keys()
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in result.figures.values())
    assert all(path.stat().st_size > 5_000 for path in result.figures.values())


@pytest.mark.slow
@AFTER_THE_RESULT
def test_a_configuration_can_be_a_file_or_a_mapping_and_keys_win(
    result: bfl.Result, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """NumPy's numbers and paths are taken as well; a callback sees rounds, and can end the run."""
    seen: list[tuple[int, Any, str]] = []

    def look(number: int, metrics: Any, posterior: Posterior) -> None:
        seen.append((number, metrics["accuracy"], posterior.digest()))
        if len(seen) == 2:
            raise KeyError("enough")

    given = result.folder / "config.toml"
    keys = {"backend": "serial", "output_dir": tmp_path, "on_round": look, "verbose": False}
    bfl.run(given, name="file", rounds=np.int64(1), **keys)
    with pytest.raises(BflError, match=r"look, raised in round 1: KeyError\('enough'\)"):
        bfl.run(in_sections(result.configuration), name="mapping", rounds=2, **keys)
    for wrong in ({"data": {"train_examples": 9}, "train-examples": 9}, {"run": {"batch_size": 9}}):
        with pytest.raises(ConfigurationError, match=r"given twice|at the top"):
            bfl.run(wrong, **keys)
    first = result.rounds[0]
    assert seen == 2 * [(1, first["accuracy"], first["posterior-sha256"])]
    assert not capfd.readouterr().out
    for name, rounds in {"file": 1, "mapping": 2}.items():
        again = bfl.load(tmp_path / name)
        assert again.configuration["rounds"] == rounds
        assert [r["posterior-sha256"] for r in again.rounds] == [first["posterior-sha256"]]
    seed = {"seed": 1, "overwrite": True, "rounds": 1}
    bfl.run(given, name="mapping", **seed, **keys)
    assert bfl.load(tmp_path / "mapping").configuration["seed"] == 1
    assert (tmp_path / "file").exists()
    with pytest.raises(BflError):
        bfl.run(given, name="mapping", overwrite=True, strategy="nonesuch", **keys)
    assert bfl.load(tmp_path / "mapping").finished
    with pytest.raises(ConfigurationError, match="holds another run"):
        bfl.run(result.configuration, backend="serial", name="file", output_dir=tmp_path)


@pytest.mark.slow
def test_a_federation_that_fails_is_an_exception(
    small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import clients.client_app

    def fail(*_: Any) -> None:
        raise ValueError("no training today")

    monkeypatch.setattr(clients.client_app, "train_round", fail)
    with pytest.raises(BflError, match="0 of 3 clients"):
        bfl.run(**small, output_dir=str(tmp_path), name="run")


@pytest.mark.long
def test_ray_gives_the_same_in_a_loop_of_another_thread(
    result: bfl.Result, small: dict[str, Any], tmp_path: Path
) -> None:
    """The worst a notebook can do, in a process of its own."""
    keys = {**small, "backend": "ray", "strategy": "conflation", "output_dir": str(tmp_path)}
    code = f"""
    import asyncio, threading, bfl

    async def work():
        bfl.run(name="run", **{keys!r})

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    thread.join()
    """
    environment = {k: v for k, v in os.environ.items() if k not in ("BFL_CPUS", "RAY_ADDRESS")}
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=tmp_path,
        env=environment,
        check=True,
        capture_output=True,
        timeout=900,
    )
    again = bfl.load(tmp_path / "run")
    assert again.posterior.digest() == result.posterior.digest()


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
