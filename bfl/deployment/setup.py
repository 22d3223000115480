"""A federation's folder made and changed, with start scripts and systemd units."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat

from bfl.deployment import authority
from bfl.deployment import private_files as names
from bfl.deployment.authority import Authority
from bfl.deployment.client_list import HEADER, Client, ClientList, checked_name
from bfl.deployment.private_files import FederationFolder, private_folder, write_private
from bfl.deployment.settings import MADE, Identity, ServerSettings
from bfl.errors import ConfigurationError
from bfl.files import write_atomically

TEMPLATE = Path(__file__).with_name("template")


def init(path: Path, settings: ServerSettings, clients: str, now: datetime) -> FederationFolder:
    """Make a federation: authority, server's certificate, and a key pair for each client.

    Args:
        clients: Their names, such as ``north,south``, or how many they are.
    """
    named = _names(clients)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigurationError(
            f"{path} is there already; allowed: a new folder, or add-client, revoke-client and "
            "renew for a federation that is there"
        )
    folder = FederationFolder(path)
    for each in (path, folder.authority, folder.server, path / "clients"):
        private_folder(each)
    signer, key = Authority.create(now), authority.new_key()
    signer.save(folder.authority)
    write_private(folder.server / names.SERVER_KEY, authority.private_pem(key))
    write_private(folder.server / names.SECRET, secrets.token_hex(32).encode())
    _write_certificate(folder, signer, key.public_key(), settings, now)
    _write_service(folder.server, "server", names.SERVER)
    listed = ClientList(num_partitions=len(named))
    for partition_id, name in enumerate(named):
        listed = _add_to_list(folder, listed, name, partition_id, None)
    _write_list(folder, listed, settings)
    return folder


def _names(given: str) -> list[str]:
    words = [word.strip() for word in given.split(",")]
    if given.strip().isdecimal():
        if not 1 <= int(given) <= 10_000:  # each has a folder with keys of its own
            raise ConfigurationError(f"--clients is {given}; allowed: 1 to 10,000, or names")
        words = [f"client-{partition_id}" for partition_id in range(int(given))]
    if len(set(words)) < len(words):
        raise ConfigurationError(f"--clients is {given}; allowed: each name once")
    return [checked_name(word) for word in words]


def add_client(path: Path, name: str, public_key: str | None = None) -> Client:
    """Let one client more in, on the first free partition; return it.

    Args:
        public_key: A key that the client has made itself; None: one is made here.
    """
    folder, listed, settings = _open(path)
    checked_name(name)
    if folder.client(name).exists():
        raise ConfigurationError(
            f"{folder.client(name)} is there already; choose another name, or remove it"
        )
    listed = _add_to_list(folder, listed, name, listed.vacant(), public_key)
    _write_list(folder, listed, settings)
    return listed.client(name)


def revoke_client(path: Path, name: str) -> Client:
    """Take a client off the list; return it."""
    folder, listed, _ = _open(path)
    client = listed.client(name)
    listed.without(name).write(folder.server / names.CLIENTS, HEADER)
    # A key that nobody takes any more is not kept.
    shutil.rmtree(folder.client(name), ignore_errors=True)
    return client


def renew(path: Path, hosts: Sequence[str], now: datetime) -> None:
    """Make the server's certificate anew, for the same key, and for its hosts if none are given.

    It ends with the authority's at the latest.
    """
    folder, listed, settings = _open(path)
    settings = settings.model_copy(update={"hosts": tuple(hosts) or settings.hosts})
    signer = Authority.load(folder.authority)
    key = authority.load_private_key(folder.server / names.SERVER_KEY)
    _write_certificate(folder, signer, key.public_key(), settings, now)
    _write_list(folder, listed, settings)


def _open(path: Path) -> tuple[FederationFolder, ClientList, ServerSettings]:
    folder = FederationFolder(path)
    folder.check()
    listed = ClientList.read(folder.server / names.CLIENTS)
    return folder, listed, ServerSettings.read(folder.server / names.SETTINGS)


def _write_certificate(
    folder: FederationFolder,
    signer: Authority,
    key: ec.EllipticCurvePublicKey,
    settings: ServerSettings,
    now: datetime,
) -> None:
    certificate = signer.server_certificate(key, settings.hosts, now)
    for name, each in ((names.SERVER_CERTIFICATE, certificate), (names.CA, signer.certificate)):
        write_atomically(folder.server / name, each.public_bytes(Encoding.PEM))
    settings.write(folder.server / names.SETTINGS)


def _add_to_list(
    folder: FederationFolder,
    listed: ClientList,
    name: str,
    partition_id: int,
    public_key: str | None,
) -> ClientList:
    key = authority.new_key() if public_key is None else None
    public = authority.openssh_public(key.public_key()) if key else str(public_key)
    table = {"name": name, "partition-id": partition_id, "public-key": public}
    client = Client.parse(table, f"client {name}")
    # Refused before anything is written.
    listed = listed.with_client(client)
    place = private_folder(folder.client(name))
    if key:
        pem = authority.private_pem(key, PrivateFormat.OpenSSH)
        write_private(place / names.CLIENT_KEY, pem)
    write_atomically(place / names.PUBLIC_KEY, f"{client.public_key}\n".encode())
    write_atomically(place / names.NODE, (TEMPLATE / names.NODE).read_bytes())
    _write_service(place, "client", name)
    return listed


def _write_list(folder: FederationFolder, listed: ClientList, settings: ServerSettings) -> None:
    listed.write(folder.server / names.CLIENTS, HEADER)
    trusted = (folder.server / names.CA).read_bytes()
    for client in listed.clients:
        # Its folder may have been moved to the client's machine, which then needs these two files.
        place = private_folder(folder.client(client.name))
        write_atomically(place / names.CA, trusted)
        Identity(
            name=client.name,
            server=settings.hosts[0],
            port=settings.port,
            partition_id=client.partition_id,
            num_partitions=listed.num_partitions,
        ).write(place / names.IDENTITY, MADE)


def _write_service(folder: Path, role: str, place: str) -> None:
    """Write start script and unit of the command ``server`` or ``client``, named after a place."""
    words = {
        "role": role,
        "place": place,
        "what": "the server" if role == "server" else f"client {place}",
        # A client may compute on a GPU.
        "private_devices": "yes" if role == "server" else "no",
    }
    for name, template in (("start.sh", "start.sh"), (f"bfl-{place}.service", "bfl.service")):
        text = (TEMPLATE / template).read_text(encoding="utf-8")
        write_atomically(folder / name, text.format(**words).encode())
    (folder / "start.sh").chmod(0o755)
