import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from bfl.errors import RunError
from bfl.federation.state import Snapshots


def arrays(number: int) -> dict[str, np.ndarray]:
    return {"a": np.arange(number), "b.c": np.array([[1.5, np.inf]], np.float32)}


def check(found: tuple[int, dict[str, np.ndarray]] | None, number: int) -> None:
    assert found is not None
    assert found[0] == number
    for name, array in arrays(number).items():
        assert np.array_equal(found[1][name], array)
        assert found[1][name].dtype == array.dtype


def of_round(snapshots: Snapshots, number: int) -> tuple[int, dict[str, np.ndarray]] | None:
    found = snapshots.at(number)
    return None if found is None else (number, found)


def test_those_between_two_rounds_are_dropped(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path, kept=9)
    for number in (2, 3, 4, 5, 7):
        snapshots.save(number, arrays(number))
    snapshots.drop_between(2, 5)
    assert snapshots.rounds() == [2, 5, 7]
    snapshots.drop_between(2, 2)
    assert snapshots.rounds() == [2, 5, 7]


def test_the_last_ones_are_kept(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path / "made" / "on demand", kept=3)
    assert snapshots.latest() is None
    for number in range(1, 8):
        snapshots.save(number, arrays(number))
        check(snapshots.latest(), number)
    assert snapshots.rounds() == [5, 6, 7]
    check(of_round(snapshots, 6), 6)
    assert snapshots.at(4) is None


def test_a_low_round_is_kept_beside_higher_ones(tmp_path: Path) -> None:
    """As when an interrupted try has left its last rounds, and another one begins anew."""
    snapshots = Snapshots(tmp_path, kept=3)
    for number in (6, 7, 8):
        snapshots.save(number, arrays(number))
    for number in range(1, 9):
        snapshots.save(number, arrays(number))
        check(snapshots.latest(), number)
        check(of_round(snapshots, number), number)
        if number > 1:
            check(of_round(snapshots, number - 1), number - 1)
        assert len(list(tmp_path.iterdir())) == 3
    assert snapshots.rounds() == [6, 7, 8]


def test_one_is_enough_to_go_on_from(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path, kept=1)
    for number in (9, 1, 2, 2):
        snapshots.save(number, arrays(number))
        assert snapshots.rounds() == [number]
        check(snapshots.latest(), number)


def test_killed_before_the_old_ones_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots = Snapshots(tmp_path)

    def killed(self: Path, missing_ok: bool = False) -> None:
        if self.suffix == ".snapshot":
            raise KeyboardInterrupt

    snapshots.save(7, arrays(7))
    snapshots.save(8, arrays(8))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            snapshots.save(1, arrays(1))
    assert snapshots.rounds() == [1, 7, 8]
    check(snapshots.latest(), 1)
    snapshots.save(2, arrays(2))
    assert snapshots.rounds() == [1, 2]


def test_both_damaged_and_begun_anew(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path)
    for number in (7, 8):
        snapshots.save(number, arrays(number))
    for path in tmp_path.iterdir():
        path.write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="is damaged"):
        assert snapshots.latest() is None
    snapshots.save(1, arrays(1))
    check(snapshots.latest(), 1)
    snapshots.save(2, arrays(2))
    check(snapshots.latest(), 2)
    check(of_round(snapshots, 1), 1)


def test_files_of_earlier_versions_are_read(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path)
    for number in (3, 4):
        snapshots.save(number, arrays(number))
        [path] = tmp_path.glob(f"round-{number:06d}.*.snapshot")
        path.rename(tmp_path / f"round-{number:06d}.snapshot")
    check(snapshots.latest(), 4)
    snapshots.save(5, arrays(5))
    assert snapshots.rounds() == [4, 5]


def test_a_state_without_arrays_is_a_state(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path)
    snapshots.save(1, {})
    assert snapshots.latest() == (1, {})


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "digest", "gone"])
def test_a_damaged_one_is_passed_over_with_a_warning(tmp_path: Path, damage: str) -> None:
    snapshots = Snapshots(tmp_path)
    snapshots.save(4, arrays(4))
    snapshots.save(5, arrays(5))
    path = sorted(tmp_path.iterdir())[-1]
    data = path.read_bytes()
    damaged = {
        "cut": data[:-7],
        "flip": data[:200] + bytes([data[200] ^ 1]) + data[201:],
        "empty": b"",
        "digest": b"0" + data[1:] if data[:1] != b"0" else b"1" + data[1:],
    }
    if damage == "gone":
        path.unlink()
        check(snapshots.latest(), 4)
        return
    path.write_bytes(damaged[damage])
    with pytest.warns(UserWarning, match="is damaged"):
        check(snapshots.latest(), 4)
    snapshots.save(5, arrays(5))
    check(snapshots.latest(), 5)


def test_a_killed_write_leaves_no_half_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots = Snapshots(tmp_path)
    snapshots.save(1, arrays(1))

    def no_rename(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", no_rename)
    with pytest.raises(RunError, match="No space left"):
        snapshots.save(2, arrays(2))
    check(snapshots.latest(), 1)
    assert len(list(tmp_path.iterdir())) == 1


def test_other_files_do_not_matter(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path)
    snapshots.save(1, arrays(1))
    (tmp_path / ".round-000002.snapshot.99.tmp").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    assert snapshots.rounds() == [1]


def test_large_arrays_are_not_copied_more_than_once(tmp_path: Path) -> None:
    """Models of many clients fit in memory once or twice, and not four times."""
    snapshots, large = Snapshots(tmp_path), np.zeros(1 << 26, np.uint8)
    tracemalloc.start()
    try:
        snapshots.save(1, {"large": large})
        saved = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        found = snapshots.at(1)
        read = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found is not None
    assert np.array_equal(found["large"], large)
    assert large.nbytes <= saved < 1.5 * large.nbytes
    assert large.nbytes <= read < 1.5 * large.nbytes
