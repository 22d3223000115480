"""``bfl federation init`` and what changes it: certificates, keys, permissions, the list."""

import shutil
import socket
import ssl
import stat
import subprocess
import threading
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID
from federation_folders import HOSTS, NOW, listed
from PIL import Image

from bfl.commands.main import main
from bfl.deployment import private_files as names
from bfl.deployment import setup
from bfl.deployment.authority import AUTHORITY_DAYS, SERVER_DAYS, load_certificate
from bfl.deployment.client import check_client, run_client
from bfl.deployment.client_list import ClientList
from bfl.deployment.private_files import FederationFolder, private_folder
from bfl.deployment.server import check_server, serve_federation
from bfl.deployment.settings import Identity, ServerSettings
from bfl.errors import ConfigurationError, DataError
from bfl.experiments.results.run_folder import locked


def handshake(server: Path, authority: Path, host: str) -> None:
    """Shake hands as a client that trusts an authority and calls a host does."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(server / "server.crt", server / "server.key")
    calling = ssl.create_default_context(cafile=str(authority))
    # As strict as OpenSSL can be about what an authority's certificate has to say.
    calling.verify_flags |= ssl.VERIFY_X509_STRICT
    ours, theirs = socket.socketpair()
    ours.settimeout(10)
    theirs.settimeout(10)

    def serve() -> None:
        try:
            with serving.wrap_socket(theirs, server_side=True):
                pass
        except OSError:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with calling.wrap_socket(ours, server_hostname=host):
            pass
    finally:
        ours.close()
        thread.join()


def test_clients_accept_the_server_by_its_names_alone(made: Path) -> None:
    authority = made / "clients" / "client-0" / "ca.crt"
    for host in (*HOSTS, "localhost", "127.0.0.1", "::1"):
        handshake(made / "server", authority, host)
    for host in ("example.org", "192.0.2.8"):
        with pytest.raises(ssl.SSLCertVerificationError, match="match"):
            handshake(made / "server", authority, host)


def test_clients_accept_no_server_of_another_authority(made: Path, tmp_path: Path) -> None:
    """The other authority has the same name, so that only its key tells it apart."""
    other = setup.init(tmp_path / "other", ServerSettings(hosts=HOSTS), "1", NOW)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(other.server, made / "clients" / "client-0" / "ca.crt", HOSTS[0])


def test_certificates_are_for_what_they_are_for(made: Path) -> None:
    authority = load_certificate(made / "authority" / "ca.crt")
    server = load_certificate(made / "server" / "server.crt")

    def extension(certificate: x509.Certificate, kind: type) -> object:
        return certificate.extensions.get_extension_for_class(kind).value

    assert extension(authority, x509.BasicConstraints) == x509.BasicConstraints(True, 0)
    assert extension(server, x509.BasicConstraints) == x509.BasicConstraints(False, None)
    usage = extension(authority, x509.KeyUsage)
    assert (usage.key_cert_sign, usage.digital_signature) == (True, False)
    usage = extension(server, x509.KeyUsage)
    assert (usage.key_cert_sign, usage.digital_signature) == (False, True)
    purposes = list(extension(server, x509.ExtendedKeyUsage))
    assert purposes == [ExtendedKeyUsageOID.SERVER_AUTH]
    for certificate, days in ((authority, AUTHORITY_DAYS), (server, SERVER_DAYS)):
        begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        assert begins <= NOW - timedelta(minutes=1)
        assert abs(ends - NOW - timedelta(days=days)) < timedelta(minutes=1)


def test_private_files_are_private_and_lie_where_they_belong(made: Path) -> None:
    private = {
        path.relative_to(made).as_posix()
        for path in made.rglob("*")
        if path.is_file() and not stat.S_IMODE(path.stat().st_mode) & 0o077
    }
    clients = {f"clients/client-{number}/client.key" for number in range(3)}
    assert private == {
        *("authority/ca.key", "server/server.key", "server/superexec.secret"),
        *clients,
    }
    for path in made.rglob("*"):
        if path.is_file() and b"PRIVATE KEY" in path.read_bytes():
            assert path.relative_to(made).as_posix() in private
        if path.is_dir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_each_client_has_its_own_key_and_the_list_has_its_public_half(made: Path) -> None:
    clients = ClientList.read(made / "server" / "clients.toml")
    assert [(c.name, c.partition_id) for c in clients.clients] == [
        (f"client-{number}", number) for number in range(3)
    ]
    assert len({client.public_key for client in clients.clients}) == 3
    for client in clients.clients:
        place = made / "clients" / client.name
        key = serialization.load_ssh_private_key((place / "client.key").read_bytes(), None)
        public = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        assert public.decode() == client.public_key == (place / "client.pub").read_text().strip()
        identity, _ = check_client(place, NOW)
        assert identity == Identity(
            name=client.name,
            server=HOSTS[0],
            port=8443,
            partition_id=client.partition_id,
            num_partitions=3,
        )
    check_server(made / "server", NOW)


def test_start_scripts_are_shell_and_units_are_systemds(made: Path, tmp_path: Path) -> None:
    for place, name in (("server", "bfl-server"), ("clients/client-2", "bfl-client-2")):
        assert stat.S_IMODE((made / place / "start.sh").stat().st_mode) == 0o755
        subprocess.run(["sh", "-n", made / place / "start.sh"], check=True)
        text = (made / place / f"{name}.service").read_text()
        assert f"/opt/bfl/bin/bfl federation {name.split('-')[1]} /etc/bfl/" in text
        if shutil.which("systemd-analyze"):
            unit = tmp_path / f"{name}.service"
            # The only change: a command that is on this machine.
            unit.write_text(text.replace("/opt/bfl/bin/bfl", "/bin/sh"))
            verify = ["systemd-analyze", "verify", "--man=no", unit]
            done = subprocess.run(verify, capture_output=True, text=True, check=False)
            assert not [line for line in done.stderr.splitlines() if unit.name in line]


def test_a_revoked_client_is_gone_and_another_takes_its_place(federation: FederationFolder) -> None:
    key = listed(federation).client("client-1").public_key
    setup.revoke_client(federation.path, "client-1")
    assert [client.name for client in listed(federation).clients] == ["client-0", "client-2"]
    assert listed(federation).num_partitions == 3
    assert not federation.client("client-1").exists()
    added = setup.add_client(federation.path, "newcomer")
    assert added.partition_id == 1
    assert added.public_key != key
    check_client(federation.client("newcomer"), NOW)


def test_a_client_may_bring_its_own_key(federation: FederationFolder, tmp_path: Path) -> None:
    other = setup.init(tmp_path / "other", ServerSettings(hosts=HOSTS), "1", NOW)
    public = (other.client("client-0") / "client.pub").read_text().strip()
    added = setup.add_client(federation.path, "own", public_key=f"{public} someone@somewhere\n")
    assert added.public_key == public
    assert not (federation.client("own") / "client.key").exists()
    assert listed(federation).client("own").public_key == public


def test_renewal_keeps_the_keys(federation: FederationFolder) -> None:
    def keys() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in federation.path.rglob("*.key")}

    before, clients = keys(), listed(federation)
    old = load_certificate(federation.server / "server.crt")
    later = NOW + timedelta(days=300)
    setup.renew(federation.path, ["new.example.org"], later)
    new = load_certificate(federation.server / "server.crt")
    assert keys() == before
    assert listed(federation) == clients
    assert new.serial_number != old.serial_number
    assert new.not_valid_after_utc > later + timedelta(days=SERVER_DAYS - 1)
    check_server(federation.server, later)
    assert Identity.read(federation.client("client-0") / "identity.toml").server == (
        "new.example.org"
    )


def test_the_commands_do_what_they_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the first to the last of docs/deployment.md, and what is to be copied is said."""
    made = FederationFolder(tmp_path / "federation")

    def bfl(*words: str | Path) -> str:
        assert main(["federation", *map(str, words)]) == 0
        return capsys.readouterr().out

    bfl("init", made.path, "--host", "a.example", "--clients", "north,south", "--port", "443")
    assert Identity.read(made.client("south") / "identity.toml").address == "a.example:443"
    run = ["--run-config", 'model="convnet"']
    assert main(["federation", "check", str(made.server), *run]) == 2
    assert "convnet" in capsys.readouterr().err
    for folder in (made.server, made.client("south")):  # no data are looked at, which is said
        assert "complete" in (checked := bfl("check", folder))
        assert "no data" in checked
    own = made.client("south")
    for name in ("ant", "bee"):  # numbered by the folders' names, which others may lack
        (own / "images" / name).mkdir(parents=True)
        for number in range(5):
            grey = np.full((4, 4), number, np.uint8)
            Image.fromarray(grey).save(own / "images" / name / f"{number}.png")
    with (own / "node.toml").open("a") as settings:
        settings.write('\ndataset = "folder:images"\n')
    assert main(["federation", "check", str(own)]) == 2
    assert "classes.txt" in capsys.readouterr().err
    (own / "images" / "classes.txt").write_text("ant\nbee\nwasp\n")
    assert "client south: its folder is complete" in bfl("check", own)
    run = ["--run-config", f'model="mlp" dataset="folder:{own / "images"}"']
    checked = bfl("check", made.server, *run)
    assert "10 examples, all for testing" in checked
    assert "ant 5 (50%), bee 5 (50%)" in checked, "of all ten"
    # What its test rows alone have, training rows of others may have as well.
    rows = "".join(f"kind {max(row, 6)},{row % 2}\n" for row in range(20))
    (own / "rows.csv").write_text(f"kind,target\n{rows}")
    (own / "node.toml").write_text('dataset = "table:rows.csv"')
    assert "0 things to look at" in bfl("check", own)
    assert "partition 1 is vacant" in bfl("revoke-client", made.path, "south")
    assert "client one has partition 1" in bfl("add-client", made.path, "one")
    assert "there are 3 partitions" in bfl("add-client", made.path, "two")
    bfl("renew", made.path, "--host", "b.example")
    assert Identity.read(made.client("two") / "identity.toml").server == "b.example"
    assert "it lets in north, one, two" in bfl("check", made.server)


@pytest.mark.parametrize(
    ("words", "bind"),
    [
        (["--host", "127.0.0.1"], "127.0.0.1"),
        (["--host", "a.example"], "0.0.0.0"),
        (["--host", "::1"], "::1"),
        (["--host", "localhost", "--host", "127.0.0.2", "--host", "::1"], "127.0.0.1"),
        (["--host", "a.example", "--host", "2001:db8::7"], "::"),
        (["--host", "127.0.0.1", "--host", "a.example"], "0.0.0.0"),
        (["--host", "127.0.0.1", "--bind", "0.0.0.0"], "0.0.0.0"),
    ],
)
def test_a_server_of_this_machine_alone_listens_to_no_other(
    words: list[str], bind: str, tmp_path: Path
) -> None:
    made = FederationFolder(tmp_path / "federation")
    assert main(["federation", "init", str(made.path), *words, "--clients", "1"]) == 0
    assert ServerSettings.read(made.server / names.SETTINGS).listens == bind


def test_a_number_of_clients_that_no_machine_holds_makes_nothing(tmp_path: Path) -> None:
    words = ["federation", "init", str(tmp_path / "made"), "--host", "localhost"]
    assert main([*words, "--clients", "1000000000000"]) == 2
    assert not (tmp_path / "made").exists()


def test_a_port_in_use_is_named_before_anything_starts(federation: FederationFolder) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        settings = ServerSettings.read(federation.server / names.SETTINGS)
        taken = settings.model_copy(update={"superlink_port": other.getsockname()[1]})
        taken.write(federation.server / names.SETTINGS)
        with pytest.raises(ConfigurationError, match=r"superlink-port .*already in use"):
            serve_federation(federation.server, federation.server / "state", print)


@pytest.mark.parametrize("of", ["server", "client"])
def test_a_second_start_changes_nothing(of: str, federation: FederationFolder) -> None:
    """The one that runs reads what a second one would write."""
    folder = federation.server if of == "server" else federation.client("client-0")
    state = private_folder(folder / "state")
    begin = serve_federation if of == "server" else run_client
    with locked(state):
        before = {path: path.read_bytes() for path in state.rglob("*") if path.is_file()}
        with pytest.raises(ConfigurationError, match=str(state)):
            begin(folder, state, print)
        assert before == {path: path.read_bytes() for path in before}
        assert before.keys() == {path for path in state.rglob("*") if path.is_file()}


def test_a_folder_that_is_there_is_not_changed(tmp_path: Path) -> None:
    """It may be meant for others: what is to be private goes elsewhere, or its owner says so."""
    for mode in (0o755, 0o701):
        open_to_others = tmp_path / f"{mode:o}"
        open_to_others.mkdir()
        open_to_others.chmod(mode)
        with pytest.raises(DataError, match=f"others may enter .* {mode:o}.* chmod 700"):
            private_folder(open_to_others)
        assert stat.S_IMODE(open_to_others.stat().st_mode) == mode
    own = tmp_path / "own"
    for _ in range(2):
        assert stat.S_IMODE(private_folder(own).stat().st_mode) == 0o700
