"""Files that are there as a whole or not at all."""

import os
import secrets
from pathlib import Path

import pytest

from bfl import files
from bfl.deployment.private_files import write_private


@pytest.mark.parametrize("write", [files.write_atomically, files.create_atomically])
def test_file_is_written_and_nothing_else_is_left(tmp_path, write):
    write(tmp_path / "file", b"content")
    assert (tmp_path / "file").read_bytes() == b"content"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("write", [files.write_atomically, write_private])
def test_parts_are_written_one_behind_the_other(tmp_path, write):
    write(tmp_path / "file", b"one, ", memoryview(b"two"), b"")
    assert (tmp_path / "file").read_bytes() == b"one, two"


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


def test_what_killed_processes_have_left_is_removed_and_nothing_else(tmp_path):
    names = [".file.123.tmp", f".other.{secrets.token_hex(8)}.tmp", ".file.tmp", "file.12.tmp"]
    for name in names:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1e9, 1e9))
    fresh = tmp_path / f".other.{secrets.token_hex(8)}.tmp"
    fresh.touch()
    files.write_atomically(tmp_path / "file", b"content")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"file", fresh.name, *names[2:]}


@pytest.mark.parametrize("name", ["run", "a b", "...", "x.y-1", "ärger"])
def test_names_of_folders(name):
    assert files.folder_name_problem(name) is None


@pytest.mark.parametrize(
    "name", ["", " ", "a ", ".", "..", "a/b", "/etc/x", "a\\b", "a\0b", "a\nb", "ä" * 128]
)
def test_names_that_are_no_folders(name):
    assert files.folder_name_problem(name)
