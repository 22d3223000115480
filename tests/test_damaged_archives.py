"""Archives that are damaged, or that promise what they do not hold, through every reader."""

import hashlib
import io
import os
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bfl.archives import open_arrays
from bfl.closing import Closed
from bfl.commands.predict import read_images
from bfl.data.datasets.archive import read_archive
from bfl.errors import BflError, DataError
from bfl.experiments.results.run_folder import RunFolder
from bfl.federation.state import Snapshots
from bfl.posteriors import Manifest, Parameter

MUTATIONS = 100
"""Of each reader's archive."""

GENERATOR = np.random.default_rng(0)
MANIFEST = Manifest((Parameter("w", (6,), True, "zeros"), Parameter("b", (2,), False, "zeros")))
LABELS = np.array([0, 1, 2, 0])
IMAGES = GENERATOR.integers(0, 256, (4, 5, 4, 3), np.uint8)
PROBABILITY = np.full((4, 3), 1 / 3)
ARRAYS: dict[str, dict[str, Any]] = {
    "data": {"x_train": IMAGES, "y_train": LABELS, "x_test": IMAGES, "y_test": LABELS},
    "images": {"images": IMAGES},
    "posterior": {
        "mean": np.zeros(6, np.float32),
        "variance": np.ones(6, np.float32),
        "point": np.zeros(2, np.float32),
        "manifest": np.array(MANIFEST.to_json()),
    },
    "predictions": {
        "labels": LABELS,
        "mean_probability": PROBABILITY,
        "log_mean_probability": np.log(PROBABILITY),
        "samples": np.array(2),
        **{name: np.zeros(4) for name in ("expected-entropy", "aleatoric", "epistemic")},
    },
    "closing": {
        "head": np.zeros((3, 2)),
        "from-head": np.array(True),
        "head-vectors": np.zeros((2, 3, 3)),
        "head-values": np.ones((2, 3)),
        "density-shares": np.array([1.0]),
        "density-means": np.zeros((1, 2)),
        "density-factors": np.ones((1, 2, 2)),
        "familiarity-counts": np.ones(4000),
        "familiarity-threshold": np.array(0.01),
        "familiarity-mixing": np.array(True),
        "temperature": np.array(1.0),
        "conformal-threshold": np.array(0.5),
        "conformal-thresholds": np.full(2, 0.5),
    },
    "snapshot": {"part.scaffold.control": np.zeros(6), "posterior.mean": np.zeros(6)},
}
FILES = {
    "posterior": "posterior.npz",
    "predictions": "predictions.npz",
    "snapshot": "round-000001.000001.snapshot",
}
READERS: dict[str, Callable[[Path], object]] = {
    "data": lambda path: read_archive(path, "data"),
    "images": lambda path: read_images(path),
    "posterior": lambda path: RunFolder(path.parent).posterior(),
    "predictions": lambda path: RunFolder(path.parent).predictions(),
    "closing": lambda path: read_closing(path.parent),
    "snapshot": lambda path: Snapshots(path.parent).at(1),
}


def read_closing(folder: Path) -> Closed:
    with RunFolder(folder).reading_arrays("closing.npz") as arrays:
        return Closed.read(arrays)


def packed(arrays: dict[str, Any], *, compressed: bool = True) -> bytes:
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, **arrays)
    return stream.getvalue()


def write(folder: Path, kind: str, content: bytes) -> Path:
    path = folder / FILES.get(kind, f"{kind}.npz")
    if kind == "snapshot":
        content = hashlib.sha256(content).hexdigest().encode() + b"\n" + content
    path.write_bytes(content)
    return path


def mutated(content: bytes, random: np.random.Generator) -> bytes:
    data = bytearray(content)
    match random.integers(5):
        case 0:
            return bytes(data[: random.integers(len(data))])
        case 1:
            start = random.integers(len(data))
            return bytes(data[:start] + random.bytes(4) + data[start:])
        case 2:  # the zip's own list, which is at its end
            for _ in range(random.integers(1, 4)):
                data[-random.integers(1, min(len(data), 400))] = random.integers(256)
        case 3:
            data[random.integers(len(data))] ^= 1 << random.integers(8)
        case _:
            start = random.integers(len(data))
            data[start : start + 4] = random.choice([b"\xff" * 4, b"\0" * 4, b"\x7f\xff\xff\xff"])
    return bytes(data)


@pytest.mark.parametrize("kind", READERS)
def test_mutations_are_read_or_refused(tmp_path: Path, kind: str) -> None:
    warnings.simplefilter("ignore")
    random, right = np.random.default_rng(1), 0
    for compressed in (False, True):
        good = packed(ARRAYS[kind], compressed=compressed)
        path = write(tmp_path, kind, good)
        READERS[kind](path)
        for _ in range(MUTATIONS // 2):
            write(tmp_path, kind, mutated(good, random))
            try:
                READERS[kind](path)
            except BflError as error:
                right += path.name in str(error)
            else:
                right += 1
    assert right == MUTATIONS


@pytest.mark.parametrize("name", ["head-rotation", "longest-features"])
def test_closings_of_older_bfls_are_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path, "closing", packed({**ARRAYS["closing"], name: np.array(1.0)}))
    with pytest.raises(BflError, match=f"with {name}; make the run again"):
        read_closing(tmp_path)


def array_file(described: str, data: bytes = b"") -> bytes:
    text = described.encode()
    line = text + b" " * (-(11 + len(text)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(line).to_bytes(2, "little") + line + data


def promises(shape: str, descr: str = "'|u1'") -> bytes:
    return array_file(
        f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}", b"\0" * 60
    )


def with_member(kind: str, member: bytes, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return an archive whose arrays all have the same content."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name in ARRAYS[kind]:
            archive.writestr(f"{name}.npy", member)
    return stream.getvalue()


DAMAGES: dict[str, Callable[[str], bytes]] = {
    "lzma": lambda kind: with_member(kind, promises("(60,)"), zipfile.ZIP_LZMA)[:-300],
    "terabytes": lambda kind: with_member(kind, promises("(100000000, 224, 224, 3)")),
    "more than numbers": lambda kind: with_member(kind, promises(f"({2**62}, {2**62})")),
    "cut header": lambda kind: with_member(kind, array_file("{'descr': '|u1', 'shape': (60L, ")),
    "endless header": lambda kind: with_member(
        kind, b"\x93NUMPY\x02\x00" + (2**32 - 1).to_bytes(4, "little") + b" " * 2**16
    ),
    "records": lambda kind: with_member(kind, promises("(4,)", "[('a', '<i4'), ('b', '<f8')]")),
    "pickles": lambda kind: packed(dict.fromkeys(ARRAYS[kind], np.array([None], object))),
    "nothing": lambda kind: packed({}),
    "empty": lambda kind: b"",
    "one array": lambda kind: promises("(600,)"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damages_are_refused_by_every_reader(tmp_path: Path, damage: str) -> None:
    for kind, reader in READERS.items():
        if (kind, damage) == ("snapshot", "nothing"):
            continue  # a state without arrays is a state
        path = write(tmp_path, kind, DAMAGES[damage](kind))
        with pytest.raises(BflError, match=path.name):
            reader(path)


@pytest.mark.parametrize("kind", READERS)
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, kind, b"")
    path.unlink()
    for make in (os.mkfifo, os.mkdir):
        make(path)
        with pytest.raises(BflError, match=path.name):
            READERS[kind](path)
        path.rmdir() if path.is_dir() else path.unlink()
    if kind != "snapshot":
        with pytest.raises(BflError, match=path.name):
            READERS[kind](path)


def test_other_orders_are_the_same_arrays(tmp_path: Path) -> None:
    given = np.arange(24, dtype=">i4").reshape(2, 3, 4)
    np.savez(tmp_path / "some.npz", c=given, f=np.asfortranarray(given), scalar=np.array(3, ">f8"))
    with open_arrays(tmp_path / "some.npz") as arrays:
        for name in "cf":
            assert arrays[name].flags.c_contiguous
            assert arrays[name].dtype == np.int32
            np.testing.assert_array_equal(arrays[name], given)
        assert arrays["scalar"].shape == ()


@pytest.mark.parametrize("code", [0xD800, 0xDFFF, 0x110000, 2**31 - 1])
def test_numbers_that_are_no_characters_are_refused(tmp_path: Path, code: int) -> None:
    for name in ("class_names", "y_train"):
        texts = {"y_train": np.array(list("abca")), "y_test": np.array(list("abca"))}
        given = {**ARRAYS["data"], **texts, "class_names": np.array(list("abc"))}
        given[name].view(np.uint32)[0] = code
        path = write(tmp_path, "data", packed(given))
        with pytest.raises(DataError, match=name):
            READERS["data"](path)
