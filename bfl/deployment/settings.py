"""Settings of the server and of each client, read from the files of its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import pydantic
import tomli_w
from pydantic import AfterValidator, Field

from bfl.configuration.messages import refused_values
from bfl.configuration.sources import read_toml
from bfl.data.datasets import validate_dataset
from bfl.deployment.authority import LOOPBACK, general_name
from bfl.errors import ConfigurationError, unknown_name
from bfl.federation.exchanges import exchanges
from bfl.files import given_path, write_atomically
from bfl.learning.models import create_architecture
from bfl.registry import STRICT, kebab

EVERY_ADDRESS, EVERY_ADDRESS_6 = "0.0.0.0", "::"  # which takes IPv4 as well
PORT, SUPERLINK_PORT = 8443, 9443

MADE = "# Made by bfl federation; what it says of others is lost when it is changed by hand.\n\n"
"""Head of the files that tell a client who it is."""

NODE_FILE = """\
# Settings of this machine; the server does not see this file. Restart the client after a change.
# Paths are absolute, or below this folder.

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

# How many seconds a task may take (86400, a day): then its process is killed, the server is told
# that it has failed, and the next task gets a new process.
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


def checked_hosts(hosts: Sequence[str]) -> tuple[str, ...]:
    """Return host names and addresses, each once."""
    if not hosts:
        raise ConfigurationError("no host is given; clients have to call the server by one")
    for host in hosts:
        general_name(host)
    return tuple(dict.fromkeys(hosts))


def _path(text: str, field: pydantic.ValidationInfo) -> str:
    return str(given_path(text, kebab(field.field_name or ""))) if text else ""


def _model(word: str) -> str:
    try:
        if word:
            create_architecture(word)
    except (ConfigurationError, pydantic.ValidationError) as error:
        raise ConfigurationError(f"personal-model is {word!r}: {error}") from error
    return word


Port = Annotated[int, Field(ge=1, le=65535)]
PathText = Annotated[str, AfterValidator(_path)]
Bundle = Annotated[str, Field(pattern="^[0-9a-fA-F]{64}$"), AfterValidator(str.lower)]
"""SHA-256 of a bundle."""


class Table(pydantic.BaseModel):
    """A table of TOML; its fields are the keys, in kebab case."""

    model_config = STRICT

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """Return the keys that the table may have."""
        return tuple(field.alias or kebab(name) for name, field in cls.model_fields.items())

    @classmethod
    def parse(cls, given: Mapping[str, Any], where: str) -> Self:
        """Return the table of given values."""
        try:
            known = cls.keys()
            for key in given:
                if cls.model_config["extra"] == "forbid" and key not in known:
                    raise ConfigurationError(unknown_name("key", key, known))
            return cls.model_validate(dict(given))
        except pydantic.ValidationError as error:
            raise ConfigurationError(f"{where}: {'; '.join(refused_values(error))}") from error
        except ConfigurationError as error:
            error.args = (f"{where}: {error}",)
            raise

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the table in a file."""
        return cls.parse(read_toml(path), str(path))

    def write(self, path: Path, header: str = "") -> None:
        """Write the table as TOML, without what is empty."""
        values = {k: v for k, v in self.model_dump(by_alias=True).items() if v or v == 0}
        text = tomli_w.dumps(values, multiline_strings=False)
        write_atomically(path, (header + text).encode())


class ServerSettings(Table):
    """Address of the server and how it is reached.

    Attributes:
        hosts: The names and addresses by which clients call it, in whose files the first stands.
        bind: The address on which it listens; empty: by the hosts.
        superlink_port: The port of Flower's SuperLink, on loopback.
    """

    hosts: Annotated[tuple[str, ...], Field(strict=False), AfterValidator(checked_hosts)]
    bind: str = ""
    port: Port = PORT
    superlink_port: Port = SUPERLINK_PORT

    @pydantic.model_validator(mode="after")
    def _two_ports(self) -> Self:
        if self.port == self.superlink_port:
            raise ConfigurationError(f"port and superlink-port are both {self.port}")
        return self

    @property
    def listens(self) -> tuple[str, ...]:
        """The addresses on which it listens: this machine's alone if its hosts mean no other."""
        if all(host in LOOPBACK or host.startswith("127.") for host in self.hosts):
            here = dict.fromkeys("::1" if host == "::1" else "127.0.0.1" for host in self.hosts)
            return (self.bind,) if self.bind else tuple(here)
        return (self.bind or (EVERY_ADDRESS_6 if ":" in "".join(self.hosts) else EVERY_ADDRESS),)


class Identity(Table):
    """Identity of a client, and the server that it calls."""

    name: str
    server: Annotated[str, AfterValidator(lambda host: checked_hosts([host])[0])]
    port: Port
    partition_id: int
    num_partitions: int

    @property
    def address(self) -> str:
        """The server's host and port."""
        host = f"[{self.server}]" if ":" in self.server else self.server
        return f"{host}:{self.port}"


class NodeTable(Table):
    """Settings of a node by which its client's app decides; see ``NODE_FILE``."""

    dataset: str = ""
    data_dir: PathText | None = None
    plugins_dir: PathText = ""
    allow_run_paths: bool = False
    exchange: Annotated[str, AfterValidator(lambda name: exchanges.get(name).name)] = ""
    clients_list: PathText = ""
    greatest_weight: float = Field(1.0, gt=0.0, le=1.0)
    private: bool = False
    personal_model: Annotated[str, AfterValidator(_model)] = ""
    allow_attack: bool = False


class NodeSettings(NodeTable):
    """Settings that a client's machine alone decides; see ``NODE_FILE``."""

    cpus: int = Field(0, ge=0)
    task_timeout: float = Field(86400.0, gt=0.0)
    # An empty list is no way to say all, nor of use to say none.
    bundles: Annotated[tuple[Bundle, ...], Field(strict=False, min_length=1)] | None = None

    @classmethod
    def of_client(cls, path: Path, client: str) -> NodeSettings:
        """Return the settings in a client's file, with absolute paths; the defaults without it."""
        where, here = f"client {client}", path.parent.resolve()
        read = cls.parse(read_toml(path) if path.exists() else {}, where)
        plugins_dir = _existing(here, "plugins-dir", read.plugins_dir, where)
        placed = {
            "plugins_dir": plugins_dir or str(here / "plugins"),
            "data_dir": _existing(here, "data-dir", read.data_dir, where) or str(here / "data"),
            "clients_list": _existing(here, "clients-list", read.clients_list, where, file=True),
            "dataset": _own_data(read.dataset, here, where, Path(plugins_dir or here / "plugins")),
        }
        return read.model_copy(update=placed)


def _existing(here: Path, key: str, text: str | None, where: str, *, file: bool = False) -> str:
    path = here / (text or "")
    if text and not (path.is_file() if file else path.is_dir()):
        raise ConfigurationError(
            f"{where}: {key} is {text}, and there is no {'file' if file else 'folder'} {path} on "
            "this machine"
        )
    return str(path) if text else ""


def _own_data(dataset: str, here: Path, where: str, plugins_dir: Path) -> str:
    kind, colon, name = dataset.partition(":")
    if not (colon and kind == "npz"):
        # What a file of plugins brings is known in a run that names it, and asked before round 1.
        if dataset and not any(plugins_dir.glob("*.py")):
            try:
                validate_dataset(dataset)
            except ConfigurationError as error:
                raise ConfigurationError(f"{where}: {error}") from error
        return dataset
    path = here / given_path(name, f"{where}: dataset")
    if not path.is_file():
        raise ConfigurationError(
            f"{where}: dataset is {dataset}, and there is no file {path} on this machine"
        )
    return f"npz:{path}"
