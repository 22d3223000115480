"""Settings of the server and of each client, read from the files of its folder."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic
import tomli_w

from bfl.configuration.sources import read_toml
from bfl.data.datasets import validate_dataset
from bfl.deployment.authority import LOOPBACK, general_name
from bfl.errors import ConfigurationError, unknown_name
from bfl.federation.exchanges import exchanges
from bfl.files import given_path, write_atomically
from bfl.learning.models import create_architecture

EVERY_ADDRESS, EVERY_ADDRESS_6 = "0.0.0.0", "::"  # which takes IPv4 as well
PORT, SUPERLINK_PORT = 8443, 9443

_MADE = "# Made by bfl federation; what it says of others is lost when it is changed by hand.\n\n"

NODE_FILE = """\
# What this machine alone decides; the server does not see this file. Start the client anew after a
# change. Paths are absolute, or below this folder.

# Data of the client's own: all training images in the archive are this client's, and its metrics
# come from the test images in it. Without it, the client takes its part of the run's data set.
# dataset = "npz:data.npz"

# Where this machine keeps the archives of named data sets (mnist.npz, ...), and files of
# plugins; by default data and plugins in this folder, and never where the server says.
# data-dir = "/data"
# plugins-dir = "/data/plugins"

# Whether the client reads the archive that a run names by its path, dataset = "npz:PATH". By
# default it refuses such a run, unless it has data of its own.
# allow-run-paths = true

# How many CPUs the client computes with; all of them by default.
# cpus = 2

# How many seconds a task may take (86400, a day): then what plays it is killed, the server is told
# that it has failed, and the next task is played by a new process.
# task-timeout = 3600

# The one way in which updates may leave this machine (docs/secure-aggregation.md), and this
# machine's own copy of the server's clients.toml: masks are exchanged with the clients in it alone.
# exchange = "masked"
# clients-list = "clients.toml"

# The greatest share of a masked sum that this client's update may make (1, any): where its weight
# would be greater, it sends nothing.
# greatest-weight = 0.5

# The code that this client runs, by the SHA-256 of a run's bundle: it refuses all other. Without
# it, the client runs whatever the server sends. docs/deployment.md says how to have the hash of
# code that you have looked at.
# bundles = ["..."]

# Whether this client sends nothing without noise of its own and does not say how much data it has,
# whatever the server says (docs/privacy.md). It takes part in no other run.
# private = true

# The architecture of this client's personal model, in place of what a run's personal-models say.
# personal-model = "lenet5"

# Whether a run may have this client play a hostile one (attack, attackers), for experiments.
# allow-attack = true
"""

NODE_KEYS = (
    "dataset",
    "data-dir",
    "plugins-dir",
    "cpus",
    "task-timeout",
    "allow-run-paths",
    "exchange",
    "clients-list",
    "greatest-weight",
    "bundles",
    "private",
    "personal-model",
    "allow-attack",
)

_SHA256 = re.compile(r"[0-9a-f]{64}")

TASK_TIMEOUT = 86400.0
"""Seconds."""


@dataclass(frozen=True)
class ServerSettings:
    """Address of the server and how it is reached.

    Attributes:
        hosts: The names and addresses by which clients call it; the first is what they are told.
        bind: The address on which it listens; empty: by the hosts.
        port: The port for clients.
        superlink_port: The port of Flower's SuperLink, on loopback.
    """

    hosts: tuple[str, ...]
    bind: str = ""
    port: int = PORT
    superlink_port: int = SUPERLINK_PORT

    @property
    def listens(self) -> tuple[str, ...]:
        """The addresses on which it listens: this machine's alone if its hosts mean no other."""
        if all(host in LOOPBACK or host.startswith("127.") for host in self.hosts):
            here = dict.fromkeys("::1" if host == "::1" else "127.0.0.1" for host in self.hosts)
            return (self.bind,) if self.bind else tuple(here)
        return (self.bind or (EVERY_ADDRESS_6 if ":" in "".join(self.hosts) else EVERY_ADDRESS),)

    def write(self, path: Path) -> None:
        """Write the settings as TOML."""
        ports = {"port": self.port, "superlink-port": self.superlink_port}
        bind = {"bind": self.bind} if self.bind else {}
        settings = {"hosts": list(self.hosts), **bind, **ports}
        write_atomically(path, tomli_w.dumps(settings).encode())

    @classmethod
    def read(cls, path: Path) -> ServerSettings:
        """Return the settings in a file.

        Raises:
            ConfigurationError: It cannot be read, or a value is wrong.
        """
        given = read_toml(path)
        _check_keys(given, ("hosts", "bind", "port", "superlink-port"), path)
        hosts = given.get("hosts")
        if not isinstance(hosts, list) or not all(isinstance(host, str) for host in hosts):
            raise ConfigurationError(f"{path}: hosts is {hosts!r}; allowed: a list of host names")
        return cls(
            hosts=checked_hosts(hosts),
            bind=str(given.get("bind", "")),
            port=checked_port(given.get("port", PORT), f"{path}: port"),
            superlink_port=checked_port(
                given.get("superlink-port", SUPERLINK_PORT), f"{path}: superlink-port"
            ),
        )


@dataclass(frozen=True)
class Identity:
    """Identity of a client, and the server that it calls.

    Attributes:
        name: Its name in the list of clients.
        server: The server's host, as it stands in its certificate.
        port: The server's port.
        partition_id: The partition that it plays.
        num_partitions: How many clients there are.
    """

    name: str
    server: str
    port: int
    partition_id: int
    num_partitions: int

    @property
    def address(self) -> str:
        """The server's host and port."""
        host = f"[{self.server}]" if ":" in self.server else self.server
        return f"{host}:{self.port}"

    def write(self, path: Path) -> None:
        """Write the identity as TOML."""
        text = tomli_w.dumps(
            {
                "name": self.name,
                "server": self.server,
                "port": self.port,
                "partition-id": self.partition_id,
                "num-partitions": self.num_partitions,
            }
        )
        write_atomically(path, (_MADE + text).encode())

    @classmethod
    def read(cls, path: Path) -> Identity:
        """Return the identity in a file.

        Raises:
            ConfigurationError: It cannot be read, or a value is missing or wrong.
        """
        given = read_toml(path)
        keys = ("name", "server", "port", "partition-id", "num-partitions")
        _check_keys(given, keys, path)
        for key in keys:
            expected = str if key in ("name", "server") else int
            if type(given.get(key)) is not expected:
                raise ConfigurationError(f"{path}: {key} is {given.get(key)!r}")
        (server,) = checked_hosts([given["server"]])
        return cls(
            name=given["name"],
            server=server,
            port=checked_port(given["port"], f"{path}: port"),
            partition_id=given["partition-id"],
            num_partitions=given["num-partitions"],
        )


@dataclass(frozen=True)
class NodeSettings:
    """Settings that a client's machine alone decides.

    Attributes:
        dataset: Data of the client's own, with an absolute path; empty: its part of the run's.
        data_dir: Where archives are.
        plugins_dir: Where the files of plugins are.
        cpus: How many CPUs it computes with; 0: all.
        task_timeout: Seconds that a task may take.
        allow_run_paths: Whether it reads archives that a run names by their paths.
        exchange: The one exchange that it takes part in; empty: any.
        clients_list: Its own copy of the list of clients, with an absolute path; empty: none.
        greatest_weight: The greatest weight with which it sends anything to be added up; 1: any.
        bundles: The SHA-256 of each bundle that it runs; none: it runs all.
        private: Whether it sends nothing without noise of its own, and no number of examples.
        personal_model: The architecture of its personal model; empty: as the run says.
        allow_attack: Whether it may play a hostile client.
    """

    dataset: str
    data_dir: Path
    plugins_dir: Path
    cpus: int
    task_timeout: float
    allow_run_paths: bool
    exchange: str
    clients_list: str
    greatest_weight: float
    bundles: tuple[str, ...]
    private: bool
    personal_model: str
    allow_attack: bool

    @classmethod
    def read(cls, path: Path, client: str) -> NodeSettings:
        """Return the settings in a file; the defaults without it.

        Args:
            path: The file.
            client: The client's name, for messages.

        Raises:
            ConfigurationError: A key is unknown, or what it names is not on this machine.
        """
        given = read_toml(path) if path.exists() else {}
        _check_keys(given, NODE_KEYS, path)
        cpus = given.get("cpus", 0)
        if type(cpus) is not int or cpus < 0:
            raise ConfigurationError(
                f"client {client}: cpus is {cpus!r}; allowed: a whole number, 0 for all"
            )
        timeout = given.get("task-timeout", TASK_TIMEOUT)
        # TOML has inf and nan: neither ends a task.
        if type(timeout) not in (int, float) or not 0.0 < timeout < math.inf:
            raise ConfigurationError(
                f"client {client}: task-timeout is {timeout!r}; allowed: seconds, above 0"
            )
        here = path.parent.resolve()
        plugins_dir = _folder(given, "plugins-dir", here, client)
        return cls(
            dataset=_own_data(given.get("dataset", ""), here, client, plugins_dir),
            data_dir=_folder(given, "data-dir", here, client),
            plugins_dir=plugins_dir,
            cpus=cpus,
            task_timeout=float(timeout),
            allow_run_paths=_flag(given, "allow-run-paths", client),
            exchange=exchanges.get(str(given["exchange"])).name if "exchange" in given else "",
            clients_list=_list(given, here, client),
            greatest_weight=_share(given, "greatest-weight", client),
            bundles=_bundles(given, client),
            private=_flag(given, "private", client),
            personal_model=_model(given, client),
            allow_attack=_flag(given, "allow-attack", client),
        )


def _flag(given: Mapping[str, Any], key: str, client: str) -> bool:
    flag = given.get(key, False)
    if not isinstance(flag, bool):
        raise ConfigurationError(f"client {client}: {key} is {flag!r}; allowed: true or false")
    return flag


def _share(given: Mapping[str, Any], key: str, client: str) -> float:
    share = given.get(key, 1.0)
    if type(share) not in (int, float) or not 0.0 < share <= 1.0:
        raise ConfigurationError(
            f"client {client}: {key} is {share!r}; allowed: a number above 0, up to 1"
        )
    return float(share)


def _bundles(given: Mapping[str, Any], client: str) -> tuple[str, ...]:
    if "bundles" not in given:
        return ()
    bundles = given["bundles"]
    hashes = [str(each).lower() for each in bundles] if isinstance(bundles, list) else []
    # An empty list is no way to say all, nor of use to say none.
    if not hashes or not all(map(_SHA256.fullmatch, hashes)):
        raise ConfigurationError(
            f"client {client}: bundles is {bundles!r}; allowed: a list of SHA-256, each 64 digits "
            "from 0 to f, or no such key, to run whatever the server sends"
        )
    return tuple(hashes)


def _model(given: Mapping[str, Any], client: str) -> str:
    word = given.get("personal-model", "")
    if word == "":
        return ""
    try:
        create_architecture(str(word))
    except (ConfigurationError, pydantic.ValidationError) as error:
        raise ConfigurationError(f"client {client}: personal-model is {word!r}: {error}") from error
    return str(word)


def _list(given: Mapping[str, Any], here: Path, client: str) -> str:
    if "clients-list" not in given:
        return ""
    path = here / given_path(str(given["clients-list"]), f"client {client}: clients-list")
    if not path.is_file():
        raise ConfigurationError(
            f"client {client}: clients-list is {given['clients-list']}, and there is no file {path}"
        )
    return str(path)


def _own_data(dataset: object, here: Path, client: str, plugins_dir: Path) -> str:
    if not isinstance(dataset, str):
        raise ConfigurationError(f"client {client}: dataset is {dataset!r}; allowed: a text")
    kind, colon, name = dataset.partition(":")
    if not (colon and kind == "npz"):
        # What a file of plugins brings is known in a run that names it, and asked before round 1.
        if dataset and not any(plugins_dir.glob("*.py")):
            try:
                validate_dataset(dataset)
            except ConfigurationError as error:
                raise ConfigurationError(f"client {client}: {error}") from error
        return dataset
    path = here / given_path(name, f"client {client}: dataset")
    if not path.is_file():
        raise ConfigurationError(
            f"client {client}: dataset is {dataset}, and there is no file {path} on this machine"
        )
    return f"npz:{path}"


def _folder(given: Mapping[str, Any], key: str, here: Path, client: str) -> Path:
    if key not in given:
        return here / key.removesuffix("-dir")
    path = here / given_path(str(given[key]), f"client {client}: {key}")
    if not path.is_dir():
        raise ConfigurationError(
            f"client {client}: {key} is {given[key]}, and there is no folder {path} on this machine"
        )
    return path


def checked_hosts(hosts: Sequence[str]) -> tuple[str, ...]:
    """Return host names and addresses, each once.

    Raises:
        ConfigurationError: There is none, or one is neither a name nor an address.
    """
    if not hosts:
        raise ConfigurationError("no host is given; clients have to call the server by one")
    for host in hosts:
        general_name(host)
    return tuple(dict.fromkeys(hosts))


def checked_port(port: object, what: str) -> int:
    """Return a port.

    Raises:
        ConfigurationError: It is none.
    """
    if type(port) is not int or not 1 <= port <= 65535:
        raise ConfigurationError(f"{what} is {port!r}; allowed: 1 to 65535")
    return port


def _check_keys(given: Mapping[str, Any], known: Sequence[str], path: Path) -> None:
    for key in given:
        if key not in known:
            raise ConfigurationError(f"{path}: {unknown_name('key', key, known)}")
