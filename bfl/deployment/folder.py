"""Layout of a federation's folder.

- ``authority/``: its key and certificate; it stays on a machine of the operator's;
- ``server/``: what goes to the server's machine;
- ``clients/NAME/``: what goes to the machine of a client.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bfl.errors import ConfigurationError

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
        """Refuse a folder that ``bfl federation init`` has not made.

        Raises:
            ConfigurationError: It is none.
        """
        if not (self.server / CLIENTS).is_file() or not self.authority.is_dir():
            raise ConfigurationError(
                f"{self.path} is not the folder of a federation; make one: bfl federation init "
                f"{self.path} --host NAME --clients N"
            )
