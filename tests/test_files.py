"""Files that are there as a whole or not at all."""

import os
from pathlib import Path

import pytest

from bfl import files


def test_file_is_replaced_as_a_whole_and_nothing_else_is_left(tmp_path, monkeypatch):
    path = tmp_path / "file"
    files.write_atomically(path, b"first")
    files.write_atomically(path, b"one, ", memoryview(b"two"), b"")
    assert path.read_bytes() == b"one, two"

    def fail(_):
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="full"):
        files.write_atomically(path, b"third")
    assert path.read_bytes() == b"one, two"
    assert len(list(tmp_path.iterdir())) == 1


def test_two_hosts_with_one_process_id_do_not_share_a_temporary_file(tmp_path, monkeypatch):
    """The second writes while the first has its data aside, as on a folder that both mount."""
    monkeypatch.setattr(os, "getpid", lambda: 7)
    replace, inside = Path.replace, []

    def replace_after_the_other(self, target):
        if not inside:
            inside.append(True)
            files.write_atomically(target, b"second")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", replace_after_the_other)
    files.write_atomically(tmp_path / "file", b"first")
    assert (tmp_path / "file").read_bytes() == b"first"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("name", ["run", "a b", "x.y-1", "ärger"])
def test_names_of_folders(name):
    assert files.folder_name_problem(name) is None


@pytest.mark.parametrize("name", ["", " ", "a ", ".", "..", "a/b", "/etc/x", "a\\b", "a\0b", "~a"])
def test_names_that_are_no_folders(name):
    assert files.folder_name_problem(name)
