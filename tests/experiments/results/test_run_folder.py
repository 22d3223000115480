"""Every file of a run folder there and back, and what happens to torn and corrupt ones."""

import json
import math
import os
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from bfl.errors import ConfigurationError, DataError, RunError
from bfl.evaluation.prediction import PredictionStatistics
from bfl.evaluation.uncertainty import uncertainties
from bfl.experiments.results.run_folder import RunFolder, locked, run_key
from bfl.posteriors import Manifest, Parameter, Posterior

CONFIG = {"strategy": "linear-pool", "seed": 3, "alpha": 0.1, "flags": [1, 2], "on": True}
MANIFEST = Manifest(
    (
        Parameter("layer/kernel", (2, 3), True, "he-normal"),
        Parameter("norm/scale", (4,), False, "ones"),
    )
)


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path, "run", CONFIG, {"python": "3.11", "git-commit": None})


def test_a_new_run_holds_its_configuration_and_environment(tmp_path):
    """Also of values that TOML has no types for."""
    plain = {"pair": [1, 2], "number": 0.5, "count": 3, "text": 'a "line"\nand another: \\ é'}
    config = plain | {"pair": (1, 2), "number": np.float64(0.5), "count": np.int64(3)}
    config |= {"path": Path("some") / "data", "nothing": None}
    folder = RunFolder.create(tmp_path / "a" / "b", "run", config, {"git-commit": None})
    assert folder.path == tmp_path / "a" / "b" / "run"
    assert folder.config() == plain | {"path": str(Path("some") / "data")}
    assert folder.read_json("run.json:environment") == {"git-commit": None}
    assert {file.name for file in folder.path.iterdir()} == {"config.toml", "run.json"}


def test_a_folder_with_any_file_of_a_run_is_taken_and_an_empty_one_is_not(tmp_path):
    for file in ("metrics.json", "rounds.jsonl", "posterior.npz", "config.toml"):
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run" / file).touch()
        with pytest.raises(ConfigurationError, match="another run"):
            RunFolder.create(tmp_path, "run", {"seed": 4}, {})
        (tmp_path / "run" / file).unlink()
    assert RunFolder.create(tmp_path, "run", CONFIG, {}).config() == CONFIG


def test_names_outside_the_output_folder_and_what_cannot_be_written_are_refused(tmp_path):
    for name in ("", " ", "..", "../run", "a/../../run", "/run"):
        with pytest.raises(ConfigurationError, match="not the name of a folder"):
            RunFolder.create(tmp_path / "runs", name, CONFIG, {})
    assert not (tmp_path / "runs").exists()
    (tmp_path / "file").touch()
    for name in ("file", "x" * 300):
        with pytest.raises(ConfigurationError, match=name[:20]):
            RunFolder.create(tmp_path, name, CONFIG, {})


def test_rounds_come_back_in_order_and_those_after_a_checkpoint_are_dropped(folder):
    assert folder.rounds() == []
    entries = [
        {"round": 1, "seconds": 4.2, "clients": 10, "train-loss": 2.0},
        {"round": 2, "seconds": 0.1, "clients": 10, "accuracy": np.float32(0.5)},
        {"round": 3, "accuracy": math.inf},
    ]
    for entry in entries:
        folder.append_round(entry)
    assert folder.rounds() == entries
    assert (folder.path / "rounds.jsonl").read_text().count("\n") == 3
    folder.append_round({"round": 4, "train-loss": math.nan})
    assert math.isnan(folder.rounds()[-1]["train-loss"])
    folder.keep_rounds(2)
    assert folder.rounds() == entries[:2]
    folder.keep_rounds(0)
    assert folder.rounds() == []


@pytest.mark.parametrize("cut", [1, 2, 9, 19])
def test_a_torn_last_line_is_left_out_and_cut_off(folder, cut):
    for number in (1, 2):
        folder.append_round({"round": number, "x": 0.25})
    file = folder.path / "rounds.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[:-cut])
    if cut == 9:  # as some file systems leave it
        file.write_bytes(whole[:-cut] + bytes(40))
    assert [entry["round"] for entry in folder.rounds()] == [1]
    folder.append_round({"round": 3})
    assert [entry["round"] for entry in folder.rounds()] == [1, 3]
    assert all(json.loads(line) for line in file.read_text().splitlines())


@pytest.mark.parametrize("line", ['{"rou', '{"round": "2"}', '{"round": 2, "seconds": null}'])
def test_a_corrupt_line_in_the_middle_is_an_error(folder, line):
    (folder.path / "rounds.jsonl").write_text(f'{{"round": 1}}\n{line}\n{{"round": 3}}\n')
    with pytest.raises(DataError, match=r"rounds.jsonl, line 2"):
        folder.rounds()


def test_numbers_and_warnings_come_back(folder):
    content = {"a": 1.5, "b": [1, 2]}
    assert folder.read_json("metrics.json", missing={"c": 3}) == {"c": 3}
    folder.write_metrics(content)
    assert folder.metrics() == folder.read_json("metrics.json", missing={}) == content
    for text in ("one", "two: σ", "two: σ"):
        folder.append_warning(text)
    assert folder.warnings() == ["one", "two: σ"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_posterior_comes_back_bit_for_bit(folder, dtype):
    initial = MANIFEST.initial_posterior(0, 0.01)
    vectors = (initial.mean, initial.variance, initial.point)
    posterior = Posterior(*(vector.astype(dtype) for vector in vectors))
    folder.write_posterior(posterior, MANIFEST)
    read, manifest = folder.posterior()
    assert manifest == MANIFEST
    for name in ("mean", "variance", "point"):
        assert getattr(read, name).dtype == dtype
        np.testing.assert_array_equal(getattr(read, name), getattr(posterior, name))


@pytest.mark.parametrize(
    "posterior",
    [
        Posterior(np.zeros(5), np.ones(5), np.ones(4)),
        Posterior(np.zeros(6), np.ones(6), np.ones(3)),
        Posterior(np.zeros(6), np.zeros(6), np.ones(4)),
    ],
)
def test_a_posterior_that_does_not_fit_is_an_error(folder, posterior):
    folder.write_posterior(posterior, MANIFEST)
    with pytest.raises(DataError, match=r"posterior.npz is corrupt"):
        folder.posterior()


def test_predictions_come_back_with_every_uncertainty_and_the_same_bytes(folder):
    random = np.random.default_rng(0)
    statistics = PredictionStatistics()
    for logits in random.normal(size=(5, 20, 4)):
        statistics.add_logits(logits)
    predictions, labels = statistics.result(), random.integers(0, 4, 20)
    folder.write_predictions(predictions, labels)
    read, read_labels = folder.predictions()
    np.testing.assert_array_equal(read_labels, labels)
    assert read.samples == 5
    np.testing.assert_equal(read.scores, predictions.scores)
    for name in (
        "mean_probability",
        "log_mean_probability",
        "expected_entropy",
        "aleatoric",
        "epistemic",
    ):
        np.testing.assert_array_equal(getattr(read, name), getattr(predictions, name))
    with np.load(folder.path / "predictions.npz") as archive:
        np.testing.assert_array_equal(archive["predicted"], predictions.predicted)
        for name in uncertainties.names():
            expected = uncertainties.create(name).measure(predictions)
            np.testing.assert_array_equal(archive[name], expected)
    before = (folder.path / "predictions.npz").read_bytes()
    folder.write_predictions(predictions, labels)
    assert (folder.path / "predictions.npz").read_bytes() == before
    folder.add_arrays("predictions.npz", {"more": labels})
    assert folder.holds("predictions.npz:more")
    np.testing.assert_array_equal(folder.predictions()[1], labels)


READERS = {
    "config.toml": RunFolder.config,
    "run.json": lambda folder: folder.read_json("run.json:partition"),
    "metrics.json": RunFolder.metrics,
    "posterior.npz": RunFolder.posterior,
    "predictions.npz": RunFolder.predictions,
}


@pytest.mark.parametrize("file", READERS)
def test_a_missing_or_corrupt_file_is_named(tmp_path, file):
    for content in (None, b"\xff\xfe nonsense {", b"[1", b"PK\x03\x04 torn"):
        if content:
            (tmp_path / file).write_bytes(content)
        with pytest.raises(DataError, match=file):
            READERS[file](RunFolder(tmp_path))
        assert RunFolder(tmp_path).holds(file) == bool(content)


@pytest.mark.parametrize("mean", [np.zeros(3), np.array([{}], dtype=object)])
def test_a_missing_array_is_named_and_pickles_are_not_loaded(folder, mean):
    np.savez(folder.path / "posterior.npz", mean=mean)
    with pytest.raises(DataError, match=r"posterior.npz is corrupt"):
        folder.posterior()


def test_an_interrupted_write_leaves_the_old_file_and_every_round_is_synced(folder, monkeypatch):
    folder.write_metrics({"accuracy": 0.5})
    sync = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr("os.fsync", sync)
    with pytest.raises(RunError, match=r"metrics.json: No space left"):
        folder.write_metrics({"accuracy": 0.6})
    assert folder.metrics() == {"accuracy": 0.5}
    assert not list(folder.path.glob(".*"))
    sync.side_effect = None
    for number in (1, 2):
        sync.reset_mock()
        folder.append_round({"round": number})
        assert sync.call_count


def test_only_its_owner_may_read_a_runs_files(folder):
    folder.append_round({"round": 1})
    folder.append_text("refusals.txt", "client 1")
    folder.write_posterior(MANIFEST.initial_posterior(0, 0.1), MANIFEST)
    folder.write("figures/a.png", b"image")
    run_key(folder.path)
    with locked(folder.path):
        pass
    modes = {path: path.stat().st_mode & 0o777 for path in folder.path.rglob("*")}
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert len(modes) == 9
    assert {path.is_dir(): mode for path, mode in modes.items()} == {True: 0o700, False: 0o600}


@pytest.mark.parametrize("kind", ["pipe", "folder", "/dev/zero"])
def test_what_is_no_regular_file_or_as_large_as_memory_is_refused_at_once(tmp_path, kind):
    make = {"pipe": os.mkfifo, "folder": Path.mkdir}.get(kind, lambda p: p.symlink_to(kind))
    for file, read in {**READERS, "rounds.jsonl": RunFolder.rounds}.items():
        make(tmp_path / file)
        with pytest.raises(DataError, match=file):
            read(RunFolder(tmp_path))
    with pytest.raises(DataError, match="not the folder of a run"):
        RunFolder.at(tmp_path)
    (tmp_path / "large").mkdir()
    with (tmp_path / "large" / "rounds.jsonl").open("wb") as stream:
        stream.truncate(2**42)
    with pytest.raises(DataError, match=r"rounds\.jsonl"):
        RunFolder(tmp_path / "large").rounds()


def test_nothing_is_written_through_a_link(folder, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "a.png").write_bytes(b"mine")
    (mine / "notes").write_text("mine\n")
    (folder.path / "figures").symlink_to(mine)
    for name in ("rounds.jsonl", "refusals.txt", "run.lock", "metrics.json"):
        (folder.path / name).symlink_to(mine / "notes")
    for act in (
        lambda: folder.write("figures/a.png", b"figure"),
        lambda: folder.append_text("refusals.txt", "x"),
    ):
        with pytest.raises(RunError):
            act()
    with pytest.raises(ConfigurationError), locked(folder.path):
        pass
    folder.write_metrics({"accuracy": 0.5})
    folder.reconfigure(CONFIG)
    assert {path.name: path.read_bytes() for path in mine.iterdir()} == {
        "a.png": b"mine",
        "notes": b"mine\n",
    }


def test_texts_of_a_file_are_escaped_and_short_in_messages(folder):
    (folder.path / "config.toml").write_text('rounds = "' + "\\u001b\\u0007" + "x" * 10**6 + '"')
    with pytest.raises(DataError) as caught:
        folder.config()
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


def test_results_of_fewer_rounds_and_their_warnings_go_when_there_are_to_be_more(
    tmp_path, monkeypatch
):
    """Nor does a run pass for finished that is killed meanwhile."""
    folder = RunFolder.create(tmp_path, "finished", {"rounds": 2}, {})
    folder.write_metrics({"accuracy": 0.5})
    folder.write_json("run.json:clients", {"0": {"meme-accuracy": 0.5}})
    folder.write("report.html", b"of two rounds")
    folder.append_warning("round 1: the posterior is narrow")
    folder.append_warning("final evaluation: the posterior is narrow")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            folder.reconfigure({"rounds": 3})
    assert folder.config() == {"rounds": 2}
    folder.reconfigure({"rounds": 3})
    assert folder.config() == {"rounds": 3}
    assert not any(map(folder.holds, ("metrics.json", "report.html", "run.json:clients")))
    assert folder.warnings() == ["round 1: the posterior is narrow"]
