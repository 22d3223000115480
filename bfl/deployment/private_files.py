"""Files that only their owner may read, and the layout of a federation's folder."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bfl.errors import ConfigurationError, DataError
from bfl.files import write_atomically

PRIVATE_FOLDER = 0o700

write_private = partial(write_atomically, mode=0o600)
"""Writes a file as a whole; at no moment may anybody but its owner read it."""


def private_folder(path: Path) -> Path:
    """Return a folder that only its owner may enter, made if it is not there."""
    path.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    status = path.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise DataError(
            f"others may enter {path} (mode {stat.S_IMODE(status.st_mode):03o}); allowed: a new "
            f"folder, or your own after chmod 700 {path}"
        )
    return path


def check_private(path: Path, node: str) -> None:
    """Refuse a private file that is missing, or that others may read or write."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise DataError(f"{node}: cannot read {path}: {error.strerror or error}") from error
    if mode & 0o077:
        raise DataError(
            f"{node}: others may read or write {path} (mode {mode:03o}); allowed: 600, by chmod"
        )


CA, SERVER_CERTIFICATE, SERVER_KEY = "ca.crt", "server.crt", "server.key"
SECRET = "superexec.secret"
CLIENTS, SETTINGS = "clients.toml", "server.toml"
CLIENT_KEY, PUBLIC_KEY = "client.key", "client.pub"
IDENTITY, NODE = "identity.toml", "node.toml"
SERVER = "server"


@dataclass(frozen=True)
class FederationFolder:
    """The folder of one federation."""

    path: Path

    @property
    def authority(self) -> Path:
        """The folder of the authority, which no other machine needs."""
        return self.path / "authority"

    @property
    def server(self) -> Path:
        """Folder that goes to the server's machine."""
        return self.path / SERVER

    def client(self, name: str) -> Path:
        """Return what goes to a client's machine."""
        return self.path / "clients" / name

    def check(self) -> None:
        """Refuse a folder that ``bfl federation init`` has not made."""
        if not (self.server / CLIENTS).is_file() or not self.authority.is_dir():
            raise ConfigurationError(
                f"{self.path} is not the folder of a federation; make one: bfl federation init "
                f"{self.path} --host NAME --clients N"
            )
