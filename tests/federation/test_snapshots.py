"""Snapshots: the last few are kept, in whatever order rounds come, and damaged ones passed over."""

import os
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from bfl.errors import RunError
from bfl.federation.state import Snapshots


def arrays(number: int) -> dict[str, np.ndarray]:
    return {"a": np.arange(number), "b.c": np.array([[1.5, np.inf]], np.float32)}


def check(found: dict[str, np.ndarray] | None, number: int) -> None:
    assert found is not None
    for name, array in arrays(number).items():
        assert np.array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def check_latest(snapshots: Snapshots, number: int) -> None:
    found = snapshots.latest()
    assert found is not None
    assert found[0] == number
    check(found[1], number)


def rounds(snapshots: Snapshots) -> list[int]:
    return sorted({entry.server_round for entry in snapshots._entries()})


def saved(folder: Path, *numbers: int, kept: int = 2) -> Snapshots:
    snapshots = Snapshots(folder, kept=kept)
    for number in numbers:
        snapshots.save(number, arrays(number))
        check_latest(snapshots, number)
    return snapshots


def test_those_between_two_rounds_are_dropped(tmp_path: Path) -> None:
    snapshots = saved(tmp_path, 2, 3, 4, 5, 7, kept=9)
    snapshots.drop_between(2, 5)
    assert rounds(snapshots) == [2, 5, 7]
    snapshots.drop_between(2, 2)
    assert rounds(snapshots) == [2, 5, 7]


@pytest.mark.parametrize(
    ("kept", "before", "numbers", "left"),
    [
        (3, (), range(1, 8), [5, 6, 7]),
        (1, (9,), (1, 2, 2), [2]),
        # An interrupted try has left its last rounds, and another one begins anew.
        (3, (6, 7, 8), range(1, 9), [6, 7, 8]),
    ],
)
def test_the_last_ones_written_are_kept(tmp_path: Path, kept, before, numbers, left) -> None:
    folder = tmp_path / "made" / "on demand"
    assert Snapshots(folder).latest() is None
    snapshots = saved(folder, *before, kept=kept)
    for number in numbers:
        saved(folder, number, kept=kept)
        if kept > 1 and number > 1:
            check(snapshots.at(number - 1), number - 1)
    assert rounds(snapshots) == left
    assert len(list(folder.iterdir())) == kept
    assert snapshots.at(100) is None


def test_killed_before_the_old_ones_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots = saved(tmp_path, 7, 8)

    def killed(self: Path, missing_ok: bool = False) -> None:
        if self.suffix == ".snapshot":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            snapshots.save(1, arrays(1))
    assert rounds(snapshots) == [1, 7, 8]
    check_latest(snapshots, 1)
    assert rounds(saved(tmp_path, 2)) == [1, 2]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "digest"])
def test_a_damaged_one_is_passed_over_with_a_warning(tmp_path: Path, damage: str) -> None:
    snapshots = saved(tmp_path, 4, 5)
    first, last = sorted(tmp_path.iterdir())
    data = last.read_bytes()
    damaged = {
        "cut": data[:-7],
        "flip": data[:200] + bytes([data[200] ^ 1]) + data[201:],
        "empty": b"",
        "digest": b"0" + data[1:] if data[:1] != b"0" else b"1" + data[1:],
    }[damage]
    last.write_bytes(damaged)
    with pytest.warns(UserWarning, match="is damaged"):
        check_latest(snapshots, 4)
    first.write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="is damaged"):
        assert snapshots.latest() is None
    check(saved(tmp_path, 1, 2).at(1), 1)


def test_a_killed_write_leaves_no_half_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots = saved(tmp_path, 1)

    def no_rename(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", no_rename)
    with pytest.raises(RunError, match="No space left"):
        snapshots.save(2, arrays(2))
    check_latest(snapshots, 1)
    assert len(list(tmp_path.iterdir())) == 1


def test_what_killed_writers_left_is_removed_after_an_hour(tmp_path: Path) -> None:
    for name, age in ((".old.tmp", 3700), (".new.tmp", 60), ("old.tmp", 3700)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, time.time() - age))
    saved(tmp_path, 1)
    assert {path.name for path in tmp_path.glob("*.tmp")} == {".new.tmp", "old.tmp"}


def test_large_arrays_are_not_copied_more_than_once(tmp_path: Path) -> None:
    """Models of many clients fit in memory once or twice, and not four times."""
    snapshots, large = Snapshots(tmp_path), np.zeros(1 << 26, np.uint8)
    tracemalloc.start()
    try:
        snapshots.save(1, {"large": large})
        most_saving = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        found = snapshots.at(1)
        most_reading = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found is not None
    assert np.array_equal(found["large"], large)
    assert large.nbytes <= most_saving < 1.5 * large.nbytes
    assert large.nbytes <= most_reading < 1.5 * large.nbytes
