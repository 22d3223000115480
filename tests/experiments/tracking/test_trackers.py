"""Each tracker against local files, read back with its package's own reader or messages."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bfl.experiments.tracking import LiveLog, TrackedRun, trackers

KEY = "0123456789abcdef" * 2
FIGURE = "learning-curve.png"
CONFIGURATION = {"rounds": 3, "seed": 7, "strategy": "conflation", "resume": False, "alpha": 0.5}


def lines(*numbers: int) -> list[dict[str, Any]]:
    return [{"round": n, "seconds": 1.0, "accuracy": n / 10, "sha": "x"} for n in numbers]


@pytest.fixture
def run(tmp_path: Path) -> TrackedRun:
    from matplotlib.figure import Figure

    folder = tmp_path / "runs" / "some-run"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("rounds = 3\n")
    Figure(figsize=(2, 1), dpi=50).savefig(folder / FIGURE)
    assert struct.unpack(">II", (folder / FIGURE).read_bytes()[16:24]) == (100, 50)
    return TrackedRun(folder, "some-run", KEY, CONFIGURATION)


def log(word: str, run: TrackedRun, before: list[dict[str, Any]], *new: int, end: bool) -> None:
    """Log a run as it would be: with rounds made before, new ones, and perhaps its end."""
    with LiveLog(trackers.create(word), run, before, pytest.fail) as live:
        for entry in lines(*new):
            live.round(entry)
        if end:
            live.end({"accuracy": 0.25}, [run.path / FIGURE])


def log_with_an_interruption(word: str, run: TrackedRun) -> None:
    """Rounds 1 to 3, of which 2 lost its checkpoint; and the finished run resumed once more."""
    log(word, run, [], 1, 2, end=False)
    log(word, run, lines(1), 2, 3, end=True)
    log(word, run, lines(1, 2, 3), end=True)


STEPS = [(1, 0.1), (2, 0.2), (3, 0.3)]


def test_tensorboard(run: TrackedRun) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log_with_an_interruption("tensorboard", run)
    read = EventAccumulator(str(run.path / "tensorboard"), {"tensors": 0, "images": 0})
    read.Reload()

    def curve(tag: str) -> list[tuple[int, float]]:
        return [(e.step, round(e.tensor_proto.float_val[0], 6)) for e in read.Tensors(tag)]

    assert curve("accuracy") == STEPS
    assert curve("final/accuracy") == [(3, 0.25)]
    [image] = read.Images("figures/learning-curve")
    assert (image.step, image.width, image.height) == (3, 100, 50)
    assert image.encoded_image_string == (run.path / FIGURE).read_bytes()
    [text] = read.Tensors("configuration")
    assert b'strategy = "conflation"' in text.tensor_proto.string_val[0]
    started = read.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    assert b"conflation" in started


def test_tensorboard_can_be_read_while_the_run_goes_on(run: TrackedRun) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with LiveLog(trackers.create("tensorboard"), run, [], pytest.fail) as live:
        for entry in lines(1, 2):
            live.round(entry)
        read = EventAccumulator(str(run.path / "tensorboard"))
        read.Reload()
        assert [event.step for event in read.Tensors("accuracy")] == [1, 2]


def test_mlflow(run: TrackedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is an optional extra")
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(run.path)  # nothing is to be written into the current folder
    log_with_an_interruption("mlflow", run)
    client = mlflow.MlflowClient(f"sqlite:///{run.path.parent / 'mlflow.db'}")
    [found] = client.search_runs([client.get_experiment_by_name("bfl").experiment_id])
    history = client.get_metric_history(found.info.run_id, "accuracy")
    assert [(entry.step, entry.value) for entry in history] == STEPS
    final = client.get_metric_history(found.info.run_id, "final/accuracy")
    assert [(entry.step, entry.value) for entry in final] == [(3, 0.25)]
    assert (found.info.run_name, found.info.status) == ("some-run", "FINISHED")
    assert found.data.params == {key: str(value) for key, value in CONFIGURATION.items()}
    files = {entry.path for entry in client.list_artifacts(found.info.run_id)}
    assert files == {"config.toml", "figures"}
    [figure] = client.list_artifacts(found.info.run_id, "figures")
    assert figure.path == f"figures/{FIGURE}"
    assert {path.name for path in run.path.iterdir()} == {"config.toml", FIGURE}


def test_wandb(run: TrackedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="wandb is an optional extra")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    log_with_an_interruption("wandb", run)
    history, summary, config = _offline_records(run.path / "wandb")
    assert [(row["_step"], row["accuracy"]) for row in history if "accuracy" in row] == STEPS
    assert summary["final/accuracy"] == 0.25
    assert config["strategy"] == "conflation"
    figures = [row for row in history if any("figures/learning-curve" in key for key in row)]
    assert figures[0]["_step"] == 3


def _offline_records(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any]]:
    """Return rows, summary and configuration in wandb's files, as its own messages."""
    history: list[dict[str, Any]] = []
    summary: dict[str, Any] = {}
    config: dict[str, Any] = {}
    for path in sorted(folder.glob("offline-run-*/*.wandb")):
        for record in _messages(path.read_bytes()):
            config |= _items([*record.run.config.update, *record.config.update])
            summary |= _items(record.summary.update)
            if row := _items(record.history.item):
                history.append({"_step": record.history.step.num, **row})
    return history, summary, config


def _items(items: Any) -> dict[str, Any]:
    return {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}


def _messages(data: bytes) -> Iterator[Any]:
    """Yield the messages of a file: LevelDB's log format, behind a header of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    position, parts = 7, b""
    while position + 7 <= len(data):
        if 32768 - position % 32768 < 7:  # the rest of a block too small for a header
            position += 32768 - position % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[position : position + 7])
        parts += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # a whole message, or the last part of one
            record = Record()
            record.ParseFromString(parts)
            parts = b""
            yield record
