"""Files that are there as a whole or not at all."""

import os

import pytest

from bfl import files


@pytest.mark.parametrize("write", [files.write_atomically, files.create_atomically])
def test_file_is_written_and_nothing_else_is_left(tmp_path, write):
    write(tmp_path / "file", b"content")
    assert (tmp_path / "file").read_bytes() == b"content"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_writing_replaces_and_creating_does_not(tmp_path):
    path = tmp_path / "file"
    files.write_atomically(path, b"first")
    files.write_atomically(path, b"second")
    with pytest.raises(FileExistsError):
        files.create_atomically(path, b"third")
    assert path.read_bytes() == b"second"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("write", [files.write_atomically, files.create_atomically])
def test_failure_before_the_name_is_given_leaves_no_file(tmp_path, write, monkeypatch):
    def fail(_):
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="full"):
        write(tmp_path / "file", b"content")
    assert list(tmp_path.iterdir()) == []


def test_file_system_without_hard_links(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    files.create_atomically(tmp_path / "file", b"content")
    with pytest.raises(FileExistsError):
        files.create_atomically(tmp_path / "file", b"other")
    assert (tmp_path / "file").read_bytes() == b"content"
    assert len(list(tmp_path.iterdir())) == 1
