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
from bfl.deployment.authority import SERVER_DAYS
from bfl.deployment.client import check_client, check_clock, node_config
from bfl.deployment.private_files import FederationFolder
from bfl.deployment.server import check_server
from bfl.deployment.settings import NODE_FILE, NodeSettings, ServerSettings
from bfl.errors import BflError, ConfigurationError, DataError
from clients.node import Node


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_a_host_without_a_certificate_is_refused(federation: FederationFolder) -> None:
    edit(federation.server / "server.toml", HOSTS[0], "new.example.org")
    with pytest.raises(DataError, match=r"server: host new\.example\.org is not in its certif"):
        check_server(federation.server, NOW)


def test_a_server_of_another_authority_is_refused(
    federation: FederationFolder, tmp_path: Path
) -> None:
    other = setup.init(tmp_path / "other", ServerSettings(hosts=HOSTS), 1, NOW)
    shutil.copy(other.server / "ca.crt", federation.server / "ca.crt")
    with pytest.raises(DataError, match="server: its certificate is not of the authority"):
        check_server(federation.server, NOW)
    shutil.copy(other.server / "server.crt", federation.server / "server.crt")
    with pytest.raises(DataError, match=r"server: server\.key is not the key"):
        check_server(federation.server, NOW)


@pytest.mark.parametrize(
    ("apart", "state"),
    [(timedelta(days=SERVER_DAYS + 1), "is over"), (-timedelta(days=1), "has not begun")],
)
def test_a_clock_outside_the_lifetime_is_refused(
    federation: FederationFolder, apart: timedelta, state: str
) -> None:
    with pytest.raises(DataError, match=rf"server: the .*certificate {state}.*clock says"):
        check_server(federation.server, NOW + apart)
    if apart < timedelta():
        with pytest.raises(DataError, match=f"client client-0: .*certificate {state}"):
            check_client(federation.client("client-0"), NOW + apart)


def test_a_key_that_stands_in_the_list_twice_is_refused(federation: FederationFolder) -> None:
    clients = listed(federation).clients
    edit(federation.server / "clients.toml", clients[2].public_key, clients[0].public_key)
    with pytest.raises(ConfigurationError, match="clients client-0 and client-2 have the same"):
        check_server(federation.server, NOW)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "client-1"', 'name = "client-0"', "two clients are named client-0"),
        ("partition-id = 1", "partition-id = 0", "client-0 and client-1 both have partition-id 0"),
        ("partition-id = 1", "partition-id = 3", "client client-1: partition-id is 3; allowed: 0"),
        ("partition-id = 1", 'partition-id = "1"', "client client-1: partition-id is '1'"),
        ("partition-id = 1", "partition = 1", "client client-1: unknown key 'partition'"),
        ("num-partitions = 3", "num-partitions = 0", "num-partitions is 0; allowed: at least 1"),
        ('"ecdsa-sha2-nistp384 ', '"ssh-ed25519 ', "client client-0: its public-key is not one"),
        ('name = "client-1"', 'name = "../x"', "client name '../x'"),
        ("[[client]]", "[[clients]]", "unknown key 'clients'; did you mean 'client'"),
    ],
)
def test_a_wrong_list_is_refused_by_client(
    federation: FederationFolder, old: str, new: str, message: str
) -> None:
    edit(federation.server / "clients.toml", old, new)
    with pytest.raises(ConfigurationError) as caught:
        check_server(federation.server, NOW)
    assert message in str(caught.value)
    assert "clients.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ('dataset = "npz:data.npz"', "client client-0: dataset is npz:data.npz, and there is no"),
        ('dataset = "mnst"', "client client-0: unknown dataset 'mnst'; did you mean 'mnist'"),
        ('data-dir = "/nowhere/data"', "client client-0: data-dir is /nowhere/data, and there"),
        ("cpus = -1", "client client-0: cpus is -1"),
        ("allow-run-paths = 1", "client client-0: allow-run-paths is 1; allowed: true or false"),
        ('bundles = "00"', "client client-0: bundles is '00'"),
        ('bundles = ["00"]', "client client-0: bundles.0 is '00'"),
        ("bundles = []", "client client-0: bundles is []"),
        ("private = 1", "client client-0: private is 1; allowed: true or false"),
        ('allow-attack = "no"', "client client-0: allow-attack is 'no'; allowed: true or false"),
        ("greatest-weight = 0", "client client-0: greatest-weight is 0; allowed: "),
        ("greatest-weight = 1.5", "client client-0: greatest-weight is 1.5; allowed: "),
        ("greatest-weight = nan", "client client-0: greatest-weight is nan; allowed: "),
        ("greatest-weight = true", "client client-0: greatest-weight is True; allowed: "),
        ('personal-model = "cnn7"', "client client-0: personal-model is 'cnn7': "),
        ("task-timeout = 0", "client client-0: task-timeout is 0; allowed: greater than 0"),
        ("task-timeout = inf", "client client-0: task-timeout is inf"),
        ("task-timeout = true", "client client-0: task-timeout is True"),
        ('clients-list = "list.toml"', "client client-0: clients-list is list.toml, and there is"),
        ('exchange = "maskde"', "unknown exchange 'maskde'; did you mean 'masked'"),
        ('datset = "npz:data.npz"', "unknown key 'datset'; did you mean 'dataset'"),
    ],
)
def test_data_that_are_not_there_are_refused_by_client(
    federation: FederationFolder, node: str, message: str
) -> None:
    (federation.client("client-0") / "node.toml").write_text(node)
    with pytest.raises(ConfigurationError) as caught:
        check_client(federation.client("client-0"), NOW)
    assert message in str(caught.value)


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
        "allow-attack": False,
        "greatest-weight": 1.0,
        "dataset": f"npz:{place.resolve() / 'data.npz'}",
    }
    (place / "clients.toml").touch()
    (place / "node.toml").write_text('exchange = "masked"\nclients-list = "clients.toml"\n')
    config = node_config(*check_client(place, NOW), Path("/state"), place / "key")
    assert config["exchange"] == "masked"
    assert config["clients-list"] == str(place.resolve() / "clients.toml")
    assert config["signing-key"] == str(place / "key")


def test_data_of_a_plugins_own_source_are_looked_for_in_a_run(federation: FederationFolder) -> None:
    place = federation.client("client-0")
    (place / "plugins").mkdir()
    (place / "plugins" / "my_source.py").touch()
    (place / "node.toml").write_text('dataset = "my-source:site"\n')
    assert check_client(place, NOW)[1].dataset == "my-source:site"


def test_the_file_that_the_setup_writes_names_every_setting() -> None:
    named = re.findall(r"^# ([a-z-]+) = ", NODE_FILE, re.MULTILINE)
    assert sorted(named) == sorted(NodeSettings.keys())


def test_what_a_clients_operator_says_reaches_its_app(federation: FederationFolder) -> None:
    place = federation.client("client-0")
    said = 'private = true\npersonal-model = "lenet5"\nallow-attack = true\ngreatest-weight = 0.4\n'
    (place / "node.toml").write_text(said)
    config = node_config(*check_client(place, NOW), Path("/state"), place / "key")
    node = Node.of(SimpleNamespace(node_config=config))  # type: ignore[arg-type]
    assert (node.private, node.personal_model, node.allows_attack) == (True, "lenet5", True)
    assert node.greatest_weight == 0.4
    assert not node.simulated


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


@pytest.mark.parametrize("ahead", [5.0, 3600.0, -301.0])
def test_clocks_that_flower_does_not_take_are_refused(ahead: float) -> None:
    with pytest.raises(DataError, match=r"client a: this machine's clock is \d+ s"):
        check_clock("client a", ahead)
    for near in (3.9, 0.0, -299.0):
        check_clock("client a", near)


@pytest.mark.parametrize(
    "words",
    [
        ["init", "{new}", "--host", "fed.example.org:8443", "--clients", "2"],
        ["init", "{new}", "--host", "fed_example", "--clients", "2"],
        ["init", "{new}", "--host", "fed.example.org", "--clients", "0"],
        ["init", "{new}", "--host", "a", "--clients", "1", "--port", "70000"],
        ["init", "{new}", "--host", "a", "--clients", "1", "--port", "9443"],
        ["init", "{made}", "--host", "fed.example.org", "--clients", "2"],
        ["add-client", "{new}", "someone"],
        ["add-client", "{made}", "client-0"],
        ["add-client", "{made}", "Some One"],
        ["add-client", "{made}", "server"],
        ["add-client", "{made}", "someone", "--partition", "2"],
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


def test_no_error_holds_a_private_key(federation: FederationFolder) -> None:
    path = federation.client("client-0") / "client.key"
    damaged = path.read_text().replace("\n", "\nx", 1)
    path.write_text(damaged)
    with pytest.raises(BflError) as caught:
        check_client(federation.client("client-0"), NOW)
    assert not any(line in str(caught.value) for line in damaged.splitlines() if len(line) > 20)
    assert "not a private key in OpenSSH's format" in str(caught.value)
