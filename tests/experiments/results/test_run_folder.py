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
from bfl.experiments.results import RunFolder
from bfl.experiments.results.run_folder import locked, run_key
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


def some_predictions(examples=20):
    random = np.random.default_rng(0)
    samples = random.dirichlet(np.ones(4) * 0.4, size=(5, examples))
    return PredictionStatistics.of(samples).result(), random.integers(0, 4, examples)


# Creation ------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("file", ["metrics.json", "rounds.jsonl", "posterior.npz"])
def test_a_folder_with_any_file_of_a_run_is_taken_and_an_empty_one_is_not(tmp_path, file):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / file).touch()
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="another run"):
            RunFolder.create(tmp_path, "run", {"seed": 4}, {})
        (tmp_path / "run" / file).unlink(missing_ok=True)
        if not (tmp_path / "run" / "config.toml").exists():
            assert RunFolder.create(tmp_path, "run", CONFIG, {}).config() == CONFIG


@pytest.mark.parametrize("name", ["", " ", ".", "..", "../run", "a/../../run", "/run"])
def test_a_name_outside_the_output_folder_is_refused(tmp_path, name):
    with pytest.raises(ConfigurationError, match="not the name of a folder"):
        RunFolder.create(tmp_path / "runs", name, CONFIG, {})
    assert not (tmp_path / "runs").exists()


def test_what_cannot_be_written_is_a_configuration_error(tmp_path):
    (tmp_path / "file").touch()
    for name in ("file", "file/run", "x" * 300):
        with pytest.raises(ConfigurationError, match=name[:20]):
            RunFolder.create(tmp_path, name, CONFIG, {})


# Rounds --------------------------------------------------------------------------------------


def test_rounds_come_back_in_order(folder):
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


@pytest.mark.parametrize("cut", [1, 2, 9, 19])
def test_a_torn_last_line_is_left_out_and_cut_off(folder, cut):
    for number in (1, 2):
        folder.append_round({"round": number, "x": 0.25})
    file = folder.path / "rounds.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[:-cut])
    if cut == 9:  # as some file systems leave it
        file.write_bytes(whole[:-cut] + bytes(40))
    # Only the newline is gone for cut = 1: the entry is whole, and counts.
    kept = [1, 2] if cut == 1 else [1]
    assert [entry["round"] for entry in folder.rounds()] == kept
    folder.append_round({"round": 3})
    assert [entry["round"] for entry in folder.rounds()] == [*kept, 3]
    assert all(json.loads(line) for line in file.read_text().splitlines())


def test_a_corrupt_line_in_the_middle_is_an_error(folder):
    file = folder.path / "rounds.jsonl"
    file.write_text('{"round": 1}\n{"rou\n{"round": 3}\n')
    for action in (folder.rounds, lambda: folder.append_round({"round": 4})):
        with pytest.raises(DataError, match=r"rounds.jsonl, line 2"):
            action()
    assert file.read_text().endswith('{"round": 3}\n')


def test_rounds_after_a_checkpoint_are_dropped(folder):
    for number in range(1, 6):
        folder.append_round({"round": number})
    folder.keep_rounds(3)
    assert [entry["round"] for entry in folder.rounds()] == [1, 2, 3]
    folder.append_round({"round": 4})
    assert [entry["round"] for entry in folder.rounds()] == [1, 2, 3, 4]
    folder.keep_rounds(0)
    assert folder.rounds() == []


# Other files ---------------------------------------------------------------------------------


def test_numbers_and_warnings_come_back(folder):
    content = {"a": 1.5, "b": [1, 2]}
    assert folder.read_json("metrics.json", missing={"c": 3}) == {"c": 3}
    folder.write_metrics(content)
    assert folder.metrics() == folder.read_json("metrics.json", missing={}) == content
    assert folder.warnings() == []
    folder.append_warning("one")
    for _ in range(2):
        folder.append_warning("two: σ")
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


def test_predictions_come_back_with_every_uncertainty(folder):
    predictions, labels = some_predictions()
    folder.write_predictions(predictions, labels)
    read, read_labels = folder.predictions()
    np.testing.assert_array_equal(read_labels, labels)
    assert read.samples == 5
    for name in (
        "mean_probability",
        "log_mean_probability",
        "expected_entropy",
        "aleatoric",
        "epistemic",
    ):
        np.testing.assert_array_equal(getattr(read, name), getattr(predictions, name))
    with np.load(folder.path / "predictions.npz") as archive:
        assert {"labels", "mean_probability", "predicted", *uncertainties.names()} <= set(archive)
        np.testing.assert_array_equal(archive["predicted"], predictions.predicted)
        for name in uncertainties.names():
            expected = uncertainties.create(name).measure(predictions)
            np.testing.assert_array_equal(archive[name], expected)


def test_the_same_content_gives_the_same_bytes(tmp_path):
    folders = [RunFolder.create(tmp_path, name, CONFIG, {"a": 1}) for name in ("one", "two")]
    predictions, labels = some_predictions()
    for folder in folders:
        folder.write_predictions(predictions, labels)
        folder.write_posterior(MANIFEST.initial_posterior(0, 0.1), MANIFEST)
    for file in ("config.toml", "run.json", "predictions.npz", "posterior.npz"):
        one, two = ((folder.path / file).read_bytes() for folder in folders)
        assert one == two


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


def test_an_interrupted_write_leaves_the_old_file(folder, monkeypatch):
    folder.write_metrics({"accuracy": 0.5})

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(RunError, match=r"metrics.json: No space left"):
        folder.write_metrics({"accuracy": 0.6})
    assert folder.metrics() == {"accuracy": 0.5}
    assert not list(folder.path.glob(".*"))


def test_every_round_is_synced(folder, monkeypatch):
    synced, sync = [], os.fsync
    monkeypatch.setattr("os.fsync", lambda stream: (synced.append(stream), sync(stream)))
    counts = []
    for number in (1, 2):
        folder.append_round({"round": number})
        counts.append(len(synced))
    assert 1 <= counts[0] < counts[1]


# Files that somebody else has made ------------------------------------------------------------


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


@pytest.mark.parametrize("kind", ["pipe", "folder", "/dev/null", "/dev/zero"])
@pytest.mark.parametrize("file", ["config.toml", "run.json", "rounds.jsonl", "predictions.npz"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path, file, kind):
    make = {"pipe": os.mkfifo, "folder": Path.mkdir}.get(kind, lambda p: p.symlink_to(kind))
    make(tmp_path / file)
    read = {**READERS, "rounds.jsonl": RunFolder.rounds}[file]
    with pytest.raises(DataError, match=file):
        read(RunFolder(tmp_path))
    with pytest.raises(DataError, match="not the folder of a run"):
        RunFolder.at(tmp_path)


def test_a_file_as_large_as_memory_is_not_read(folder):
    with (folder.path / "rounds.jsonl").open("wb") as stream:
        stream.truncate(2**42)
    with pytest.raises(DataError, match=r"rounds\.jsonl"):
        folder.rounds()


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


def test_a_folder_of_an_earlier_version_is_named_as_such(folder):
    (folder.path / "run.json").rename(folder.path / "environment.json")
    with pytest.raises(DataError, match="earlier version"):
        RunFolder.at(folder.path)


# More rounds ---------------------------------------------------------------------------------


def finished_run(tmp_path):
    folder = RunFolder.create(tmp_path, "finished", {"rounds": 2}, {})
    folder.write_metrics({"accuracy": 0.5})
    folder.write_arrays("predictions.npz", {"position": np.arange(3)})
    return folder


def test_results_of_fewer_rounds_and_their_warnings_go_when_there_are_to_be_more(tmp_path):
    folder = finished_run(tmp_path)
    folder.write_json("run.json:clients", {"0": {"meme-accuracy": 0.5}})
    folder.write("report.html", b"of two rounds")
    folder.append_warning("round 1: the posterior is narrow")
    folder.append_warning("final evaluation: the posterior is narrow")
    folder.reconfigure({**folder.config(), "rounds": 3})
    assert folder.config() == {"rounds": 3}
    assert not any(map(folder.holds, ("metrics.json", "report.html", "run.json:clients")))
    assert folder.warnings() == ["round 1: the posterior is narrow"]


def test_a_run_killed_while_it_is_given_more_rounds_does_not_pass_for_finished(
    tmp_path, monkeypatch
):
    folder = finished_run(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            folder.reconfigure({**folder.config(), "rounds": 3})
    assert folder.config() == {"rounds": 2}
    folder.reconfigure({**folder.config(), "rounds": 3})
    assert not folder.holds("metrics.json")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("config.toml", 'rounds = "4"\n'),
        *(
            ("rounds.jsonl", f'{{"round": 1, "seconds": {seconds}}}\n{{"round": 2}}\n')
            for seconds in ('"x"', "null", "[1]")
        ),
    ],
)
def test_rounds_and_seconds_that_are_no_number_are_corrupt(file: str, text: str, tmp_path: Path):
    folder = RunFolder.create(tmp_path, "run", {"rounds": 2}, {})
    (folder.path / file).write_text(text)
    with pytest.raises(DataError, match=file):
        (folder.config if file == "config.toml" else folder.rounds)()
