"""Bad input gets one clear message and exit status 2, and nothing is started or written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from bfl import load, run
from bfl.commands.flower_simulation import main
from bfl.commands.main import main as bfl
from bfl.configuration import default_values
from bfl.errors import BflError
from clients.node import Node

ROOT = Path(__file__).resolve().parent.parent.parent
Make = Callable[[Path], str]


def archive(**changes: Any) -> Make:
    """Return what writes an archive of 40 images with some arrays exchanged, None: left out."""

    def make(folder: Path) -> str:
        images = np.zeros((40, 8, 8, 1), np.uint8)
        labels = np.arange(40) % 4
        arrays = {"x_train": images, "y_train": labels, "x_test": images, "y_test": labels}
        arrays = {k: v for k, v in {**arrays, **changes}.items() if v is not None}
        np.savez(folder / "data.npz", **arrays)
        return f'dataset="npz:{folder / "data.npz"}"'

    return make


def file(content: bytes) -> Make:
    def make(folder: Path) -> str:
        (folder / "data.npz").write_bytes(content)
        return f'dataset="npz:{folder / "data.npz"}"'

    return make


def taken(folder: Path, content: str = "rounds = 1\n") -> str:
    (folder / "runs" / "taken").mkdir(parents=True)
    (folder / "runs" / "taken" / "config.toml").write_text(content, encoding="utf-8")
    return f'output-dir="{folder / "runs"}" name="taken"'


def begun(content: str) -> Make:
    """Return what puts a configuration into the folder of a run that is to be gone on with."""

    def make(folder: Path) -> str:
        return taken(folder, content) + " resume=true"

    return make


def unwritable(folder: Path) -> str:
    (folder / "file").write_text("not a folder", encoding="utf-8")
    return f'output-dir="{folder / "file" / "runs"}"'


def file_in_the_place(folder: Path) -> str:
    (folder / "run").write_text("not a folder", encoding="utf-8")
    return f'output-dir="{folder}" name="run"'


# Each is refused with the key's name.
KEYS = [
    *("rounds=0", "clients=-2", "local-epochs=0", "batch-size=1", "learning-rate=0.0"),
    *("learning-rate=nan", "learning-rate=inf", "lr-decay=-1.0", "lr-silent-rounds=-1"),
    *('optimizer-state="forget"', "pretrain-examples=-0.1", "pretrain-epochs=0"),
    *("pretrain-patience=0", "pretrain-validation=1.0"),
    *("scale-floor=-1e-6", "max-examples=0", 'precision="float16"'),
    *("fraction-train=0.0", "fraction-train=1.1", "mc-samples=0", "evaluate-every=-1"),
    *("evaluate-mc-samples=0", "seed=-1", "node-timeout=0.0"),
    *("client-timeout=0.0", "min-clients=0.0", "round-retries=-1", 'name=".."', 'name="/etc/x"'),
    *('name="a/b"', 'name=" "', 'name=".." resume=true', 'name="/etc/x" resume=true'),
    *("attackers=-1", "train-examples=-1.0", "train-examples=1e6", "test-examples=-0.5"),
    *("test-examples=2.5", 'strategy="fedsgd"', 'prior="none"'),
    *('defence="medain"', "alpha=-0.5", "alpha=nan", "alpha=inf", "min-partition-size=0"),
    "shards-per-client=0",
    *("prior-scale=0.0", "initial-scale=0.0", 'variational-layers="convolutions"', "momentum=1.0"),
    *("weight-decay=-1e-5", 'weight-decay-of="kernel"', "dropout-rate=1.0"),
    *("population-size=1", "dispersion-floor=0.0"),
    *("crop-padding=-1", "calibration-bins=0", "noise-scale=0.0"),
    *("variance-floor=0.0", "hostile-fraction=0.6", "unknown-key=1"),
    *("image-size=-4", "image-size=100000", "image-channels=2", 'image-fit="padd"'),
]
KEYS_WITH_WORDS: list[tuple[str, str]] = [
    *((pair, pair.split("=")[0]) for pair in KEYS),
    ("resume=true", "name"),
    ('dataset="digit"', "digits"),
    ('dataset="npz:"', "npz:PATH"),
    ('dataset="mnist" data-dir="/no/such/folder"', "data-dir"),
    ('partition="iidd"', "iid"),
    ('model="resnet9"', "resnet8"),
    ('inference="dropout"', "mc-dropout"),
    ('weighting="size"', "train-size"),
    ('augmentation="flip"', "crop-flip"),
    ('optimizer="sdg"', "stochastic-gradient-descent"),
    ('attack="sign"', "sign-flip"),
]
# What is wrong with an archive itself is tested with its reader.
DATA: list[tuple[str, Make, str]] = [
    ("empty file", file(b""), "data.npz"),
    ("one class", archive(y_train=np.zeros(40, np.int64)), "y_train"),
    (
        "images too small",
        archive(x_train=np.zeros((40, 2, 2), np.uint8), x_test=np.zeros((40, 2, 2), np.uint8)),
        "pixels",
    ),
    (
        "fewer examples than clients",
        archive(x_train=np.zeros((9, 8, 8), np.uint8), y_train=np.arange(9) % 4),
        "clients",
    ),
    ("a folder with another run", taken, "holds another run"),
    ("a run's configuration that is empty", begun(""), "taken/config.toml"),
    ("a run's rounds that are no number", begun('rounds = "x"\n'), "rounds is 'x'"),
    ("a run's configuration that is no TOML", begun("rounds =\n"), "taken/config.toml"),
    ("a file for a run's folder", file_in_the_place, "is a file"),
    ("a folder's name that is too long", lambda _: f'output-dir="{"x" * 300}"', "output-dir"),
    ("a file for a folder", unwritable, "is a file"),
]


def refused(run_config: str, capsys: pytest.CaptureFixture[str]) -> str:
    status = main(["--app", str(ROOT), "--run-config", run_config])
    captured = capsys.readouterr()
    assert status == 2
    assert "Traceback" not in captured.err + captured.out
    # The line that says what is asked for comes before what is read of the data.
    assert not captured.out or captured.out.startswith("run of ")
    assert captured.out.count("\n") <= 1
    return captured.err


CASES = {pair: (lambda _, pair=pair: pair, word) for pair, word in KEYS_WITH_WORDS}
CASES |= {name: (make, word) for name, make, word in DATA}


@pytest.mark.parametrize(("make", "word"), CASES.values(), ids=CASES)
def test_values_data_and_folders_are_refused(
    make: Make,
    word: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    run_config = make(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    message = refused(run_config, capsys)
    assert word in message
    assert len(message.strip().splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


BAD_PATHS = ("~nobody-here/x", "x" * 300, "x/" * 2500, "a\0b")
"""No such user, a name and a path that are too long, and what no name has."""

PLACES = {
    "data-dir": 'dataset="mnist" data-dir="{}"',
    "dataset": 'dataset="npz:{}"',
    "dataset in data-dir": 'dataset="npz:{}" data-dir="."',
    "server-data": 'server-data="npz:{}"',
    "tasks": 'dataset="tasks:npz:{}:5,mnist:5" shared="convolutions"',
    "plugins": 'plugins="{}.py"',
    "output-dir": 'output-dir="{}"',
    "name": 'name="{}"',
}


@pytest.mark.parametrize("given", BAD_PATHS, ids=["no user", "long name", "long path", "NUL"])
def test_a_path_that_cannot_be_is_refused_wherever_one_is_given(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for place, pairs in PLACES.items():
        message = refused(pairs.format(given.replace("\0", "\\u0000")), capsys)
        assert place.split(" ")[0] in message or place == "tasks"
    for words in (
        ["plot", given],
        ["show", given],
        ["show", "--run-config", f"{given}.toml"],
        ["study", given, "--dry-run"],
        ["study", "x.toml", "--output", given],
        ["table", given],
        ["study", "merge", given, given],
        ["predict", given, "--data", "x.npz"],
        ["predict", ".", "--data", given],
        ["runs", given],
        ["list", "--plugins", f"{given}.py"],
        ["federation", "init", given, "--host", "localhost", "--clients", "2"],
        ["federation", "server", given],
        ["federation", "client", given],
        ["federation", "add-client", given, "name"],
        ["federation", "add-client", ".", "name", "--public-key", given],
    ):
        status = ends(lambda words=words: bfl(words))
        said = capsys.readouterr().err
        assert (status, "Traceback" in said) == (2, False), words
    for words in (["--app", given], ["--resume", given], ["--run-config", f"{given}.toml"]):
        assert ends(lambda words=words: main(words)) == 2, words
    for call in (lambda: load(given), lambda: run(f"{given}.toml"), lambda: run(output_dir=given)):
        with pytest.raises(BflError):
            call()
    node = {"partition-id": 0, "num-partitions": 1}
    for key in ("state-dir", "data-dir", "plugins-dir", "signing-key", "clients-list"):
        with pytest.raises(BflError, match=key):
            Node.of(Context(0, 0, {**node, key: given}, RecordDict(), {}))
    assert list(tmp_path.iterdir()) == []


def ends(command: Callable[[], int]) -> int:
    """Return a command's exit status, also where its options are what it refuses."""
    try:
        return command()
    except SystemExit as error:
        return int(error.code or 0)


@pytest.mark.parametrize(("key", "default"), default_values().items())
def test_every_key_refuses_values_of_another_type(
    key: str, default: object, capsys: pytest.CaptureFixture[str]
) -> None:
    given = "0" if isinstance(default, str) else '"words"'
    assert f"{key} is {given.replace(chr(34), chr(39))}; allowed: " in refused(
        f"{key}={given}", capsys
    )
