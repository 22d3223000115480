"""What is wrong in the folder of a server or a client: one message, before anything starts."""

import re
import shutil
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from federation_folders import HOSTS, NOW, listed

from bfl.commands.main import main
from bfl.deployment import setup
from bfl.deployment.authority import SERVER_DAYS, load_private_key, private_pem
from bfl.deployment.client import check_client, node_config
from bfl.deployment.private_files import FederationFolder
from bfl.deployment.server import check_server
from bfl.deployment.settings import NodeSettings, ServerSettings
from bfl.errors import BflError, ConfigurationError, DataError
from clients.node import Node


def test_a_certificate_of_another_authority_or_key_is_refused(
    federation: FederationFolder, tmp_path: Path
) -> None:
    other = setup.init(tmp_path / "other", ServerSettings(hosts=HOSTS), "1", NOW)
    shutil.copy(other.server / "ca.crt", federation.server / "ca.crt")
    with pytest.raises(DataError, match="not of the authority"):
        check_server(federation.server, NOW)
    shutil.copy(other.server / "server.crt", federation.server / "server.crt")
    with pytest.raises(DataError, match=r"server\.key"):
        check_server(federation.server, NOW)


@pytest.mark.parametrize(
    ("apart", "state"),
    [(timedelta(days=SERVER_DAYS + 1), "is over"), (-timedelta(days=1), "has not begun")],
)
def test_a_clock_outside_the_lifetime_is_refused(
    federation: FederationFolder, apart: timedelta, state: str
) -> None:
    with pytest.raises(DataError, match=f"server: .*{state}"):
        check_server(federation.server, NOW + apart)
    if apart < timedelta():
        with pytest.raises(DataError, match=f"client client-0: .*certificate {state}"):
            check_client(federation.client("client-0"), NOW + apart)


CLIENTS, NODE, SERVER = "clients.toml", "node.toml", "server.toml"


@pytest.mark.parametrize(
    ("file", "old", "new", "named"),
    [
        (SERVER, HOSTS[0], "new.example.org", r"new\.example\.org"),
        (CLIENTS, 'name = "client-1"', 'name = "client-0"', "client-0"),
        (CLIENTS, "partition-id = 1", "partition-id = 0", "client-0 and client-1 .*partition-id 0"),
        (CLIENTS, "partition-id = 1", "partition-id = 3", "client-1: partition-id is 3"),
        (CLIENTS, "partition-id = 1", "partition = 1", "client-1: .*'partition'"),
        (CLIENTS, "num-partitions = 3", "num-partitions = 0", "num-partitions is 0"),
        (CLIENTS, '"ecdsa-sha2-nistp384 ', '"ssh-ed25519 ', "client-0: .*public-key"),
        (CLIENTS, 'name = "client-1"', 'name = "../x"', r"name '\.\./x'"),
        (CLIENTS, "[[client]]", "[[clients]]", "'clients'.*'client'"),
        (NODE, "", 'dataset = "npz:data.npz"', "client-0: dataset is npz:data.npz"),
        (NODE, "", "cpus = -1", "client-0: cpus is -1"),
        (NODE, "", 'bundles = ["00"]', "client-0: bundles.0 is '00'"),
        (NODE, "", "bundles = []", r"client-0: bundles is \[\]"),
        (NODE, "", "private = 1", "client-0: private is 1"),
        (NODE, "", "greatest-weight = 1.5", "client-0: greatest-weight is 1.5"),
        (NODE, "", "task-timeout = 0", "client-0: task-timeout is 0"),
        (NODE, "", 'clients-list = "list.toml"', "client-0: clients-list is list.toml"),
        (NODE, "", 'exchange = "maskde"', "'maskde'.*'masked'"),
        (NODE, "", 'datset = "npz:data.npz"', "'datset'.*'dataset'"),
    ],
)
def test_what_is_wrong_in_a_file_is_refused_by_its_key(
    federation: FederationFolder, file: str, old: str, new: str, named: str
) -> None:
    of_node = file == NODE
    path = (federation.client("client-0") if of_node else federation.server) / file
    text = path.read_text()
    assert old in text
    path.write_text(new if of_node else text.replace(old, new, 1))
    with pytest.raises((ConfigurationError, DataError), match=named) as caught:
        check_client(path.parent, NOW) if of_node else check_server(path.parent, NOW)
    assert file != CLIENTS or CLIENTS in str(caught.value)


def test_a_key_that_stands_in_the_list_twice_is_refused(federation: FederationFolder) -> None:
    path, clients = federation.server / CLIENTS, listed(federation).clients
    text = path.read_text().replace(clients[2].public_key, clients[0].public_key)
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="client-0 and client-2"):
        check_server(federation.server, NOW)


def test_a_clients_data_are_below_its_folder_or_absolute(federation: FederationFolder) -> None:
    place = federation.client("client-0")
    (place / "data.npz").touch()
    (place / "node.toml").write_text('dataset = "npz:data.npz"\n')
    config = node_config(*check_client(place, NOW), Path("/state"), place / "key")
    assert config == {
        "partition-id": 0,
        "num-partitions": 3,
        "state-dir": "/state/client",
        "data-dir": str(place.resolve() / "data"),
        "plugins-dir": str(place.resolve() / "plugins"),
        "allow-run-paths": False,
        "private": False,
        "greatest-weight": 1.0,
        "dataset": f"npz:{place.resolve() / 'data.npz'}",
    }
    (place / "clients.toml").touch()
    said = 'exchange = "masked"\nclients-list = "clients.toml"\n'
    said += "private = true\ngreatest-weight = 0.4\n"
    (place / "node.toml").write_text(said)
    config = node_config(*check_client(place, NOW), Path("/state"), place / "key")
    node = Node.of(SimpleNamespace(node_config=config))  # type: ignore[arg-type]
    assert (node.private, node.greatest_weight, node.simulated) == (True, 0.4, False)
    assert config["exchange"] == "masked"
    assert config["clients-list"] == str(place.resolve() / "clients.toml")
    assert config["signing-key"] == str(place / "key")


def test_the_file_that_the_setup_writes_names_every_setting() -> None:
    named = re.findall(r"^# ([a-z-]+) = ", (setup.TEMPLATE / "node.toml").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(NodeSettings.keys())


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("server/server.key", "server"),
        ("server/superexec.secret", "server"),
        ("clients/client-0/client.key", "client client-0"),
        ("authority/ca.key", "authority"),
    ],
)
@pytest.mark.parametrize("fault", ["open to others", "missing"])
def test_private_files_have_to_be_private(
    federation: FederationFolder, name: str, node: str, fault: str
) -> None:
    path = federation.path / name
    if fault == "missing":
        path.unlink()
    else:
        path.chmod(0o640)
    checks = {
        "server": lambda: check_server(federation.server, NOW),
        "client client-0": lambda: check_client(federation.client("client-0"), NOW),
        "authority": lambda: setup.renew(federation.path, [], NOW),
    }
    with pytest.raises(DataError, match=f"{node}: .*{path.name}"):
        checks[node]()


@pytest.mark.parametrize(
    "words",
    [
        ["init", "{new}", "--host", "fed.example.org:8443", "--clients", "2"],
        ["init", "{new}", "--host", "fed_example", "--clients", "2"],
        ["init", "{new}", "--host", "fed.example.org", "--clients", "0"],
        ["init", "{new}", "--host", "fed.example.org", "--clients", "north,north"],
        ["init", "{new}", "--host", "a", "--clients", "1", "--port", "70000"],
        ["init", "{new}", "--host", "a", "--clients", "1", "--port", "9443"],
        ["init", "{made}", "--host", "fed.example.org", "--clients", "2"],
        ["add-client", "{new}", "someone"],
        ["add-client", "{made}", "client-0"],
        ["add-client", "{made}", "Some One"],
        ["add-client", "{made}", "server"],
        ["revoke-client", "{made}", "client-9"],
        ["server", "{new}"],
        ["client", "{new}"],
    ],
)
def test_the_command_refuses_with_one_message(
    made: Path, tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    new = tmp_path / "new"
    before = sorted(made.rglob("*"))
    given = [word.format(made=made, new=new) for word in words]
    assert main(["federation", *given]) == 2
    assert capsys.readouterr().err.startswith("refused: ")
    assert not new.exists()
    assert sorted(made.rglob("*")) == before


def test_a_clients_key_is_in_the_format_that_flower_reads(federation: FederationFolder) -> None:
    path = federation.client("client-0") / "client.key"
    path.write_bytes(private_pem(load_private_key(path)))
    with pytest.raises(DataError, match=r"client\.key is not in OpenSSH's format"):
        check_client(path.parent, NOW)


def test_no_error_holds_a_private_key(federation: FederationFolder) -> None:
    path = federation.client("client-0") / "client.key"
    damaged = path.read_text().replace("\n", "\nx", 1)
    path.write_text(damaged)
    with pytest.raises(BflError) as caught:
        check_client(federation.client("client-0"), NOW)
    assert not any(line in str(caught.value) for line in damaged.splitlines() if len(line) > 20)
    assert str(path) in str(caught.value)
