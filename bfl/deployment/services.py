"""Start scripts and systemd units for the server and for each client."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bfl.files import write_atomically

ENVIRONMENT = Path("/opt/bfl")
"""Place where the units look for the environment that has bfl installed."""

FOLDERS = Path("/etc/bfl")
"""Place where the units look for the folders that ``bfl federation init`` makes."""

SCRIPT = """\
#!/bin/sh
# Starts {what} of the federation and runs until it is stopped (Ctrl-C). The command bfl must be on
# PATH. Arguments go to it.
exec bfl federation {role} "$(dirname "$0")" "$@"
"""

# A client computes, and TensorFlow compiles: memory is not denied write and execute.
UNIT = """\
[Unit]
Description=bfl federation: {what}
After=network-online.target time-sync.target
Wants=network-online.target

[Service]
Type=exec
User=bfl
Group=bfl
UMask=0077
StateDirectory=bfl/{place}
StateDirectoryMode=0700
Environment=HOME=%S/bfl/{place}
ExecStart={environment}/bin/bfl federation {role} {folders}/{place} --state %S/bfl/{place}
# Flower lets a node in again a minute after its last sign of life.
Restart=always
RestartSec=10
# What is refused before the start is refused again.
RestartPreventExitStatus=2
SuccessExitStatus=130 143
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices={private_devices}
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
CapabilityBoundingSet=

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True)
class Service:
    """Service that is started on one machine.

    Attributes:
        role: The command: ``server`` or ``client``.
        place: The name of its folder, and of its unit.
    """

    role: str
    place: str

    def write(self, folder: Path) -> None:
        """Write the start script and the unit into the folder that is to go to the machine."""
        what = "the server" if self.role == "server" else f"client {self.place}"
        script = folder / "start.sh"
        write_atomically(script, SCRIPT.format(what=what, role=self.role).encode())
        script.chmod(0o755)
        unit = UNIT.format(
            what=what,
            role=self.role,
            place=self.place,
            environment=ENVIRONMENT,
            folders=FOLDERS,
            # A client may compute on a GPU.
            private_devices="yes" if self.role == "server" else "no",
        )
        write_atomically(folder / f"bfl-{self.place}.service", unit.encode())
