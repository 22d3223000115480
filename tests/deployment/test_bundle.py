"""What ``flwr run`` ships: every module of the product, whatever it is called."""

import hashlib
import io
import os
import zipfile
from pathlib import Path

import pytest
from flwr.cli.build import build, build_fab_from_disk

ROOT = Path(__file__).resolve().parent.parent.parent


def test_every_module_is_in_the_bundle() -> None:
    """Flower leaves out files whose names begin or end as those of tests do."""
    with zipfile.ZipFile(io.BytesIO(build_fab_from_disk(ROOT))) as bundle:
        shipped = set(bundle.namelist())
    modules = {
        path.relative_to(ROOT).as_posix()
        for package in ("bfl", "strategies", "clients")
        for path in (ROOT / package).rglob("*.py")
    }
    assert len(modules) > 100
    assert not modules - shipped


APP = """
[project]
name = "small"
version = "1.0.0"
license = "Apache-2.0"
[tool.flwr.app]
publisher = "bfl"
[tool.flwr.app.components]
serverapp = "app:server"
clientapp = "app:client"
"""


def small_app(folder: Path, changed: int) -> Path:
    """Return an app's folder, whose files were changed at some time."""
    folder.mkdir(parents=True)
    for name, text in (("pyproject.toml", APP), ("app.py", "server = client = None\n")):
        (folder / name).write_text(text)
        os.utime(folder / name, (changed, changed))
    return folder


def test_a_bundle_that_one_builds_has_the_hash_of_the_one_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same code elsewhere: what a client's operator approves, and the server sends."""
    sent = build_fab_from_disk(small_app(tmp_path / "server" / "small", 10**9))
    looked_at = small_app(tmp_path / "client" / "copy", 2 * 10**9)
    monkeypatch.chdir(tmp_path)
    build(looked_at)
    [built] = tmp_path.glob("*.fab")
    assert hashlib.sha256(built.read_bytes()).hexdigest() == hashlib.sha256(sent).hexdigest()
    (looked_at / "app.py").write_text("server = client = 1\n")
    assert build_fab_from_disk(looked_at) != sent
