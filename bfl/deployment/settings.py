"""Settings of the server and of each client, read from the files of its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import pydantic
import tomli_w
from pydantic import AfterValidator, Field

from bfl.configuration.settings import refused_values
from bfl.configuration.sources import read_toml
from bfl.deployment.authority import LOOPBACK, general_name
from bfl.deployment.connections import Door
from bfl.errors import ConfigurationError, unknown_name
from bfl.federation.exchanges import exchanges
from bfl.files import given_path, write_atomically
from bfl.registry import STRICT, kebab

EVERY_ADDRESS, EVERY_ADDRESS_6 = "0.0.0.0", "::"  # which takes IPv4 as well
PORT, SUPERLINK_PORT = 8443, 9443

OF_PATHS = {"npz": "file", "table": "file or folder", "folder": "folder"}
"""Data of a client's own, below its folder or by an absolute path, and what each has to be."""

MADE = "# Made by bfl federation; what it says of others is lost when it is changed by hand.\n\n"
"""Head of the files that tell a client who it is."""


def checked_hosts(hosts: Sequence[str]) -> tuple[str, ...]:
    """Return host names and addresses, each once."""
    for host in hosts:
        general_name(host)
    return tuple(dict.fromkeys(hosts))


def _path(text: str, field: pydantic.ValidationInfo) -> str:
    return str(given_path(text, kebab(field.field_name or ""))) if text else ""


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
    """The hosts by which clients call the server, and where it and its SuperLink listen."""

    hosts: Annotated[
        tuple[str, ...], Field(strict=False, min_length=1), AfterValidator(checked_hosts)
    ]
    bind: str = ""
    port: Port = PORT
    superlink_port: Port = SUPERLINK_PORT

    @pydantic.model_validator(mode="after")
    def _two_ports(self) -> Self:
        if self.port == self.superlink_port:
            raise ConfigurationError(f"port and superlink-port are both {self.port}")
        return self

    @property
    def listens(self) -> str:
        """The address on which it listens: this machine's alone if its hosts mean no other."""
        if all(host in LOOPBACK or host.startswith("127.") for host in self.hosts):
            return self.bind or ("::1" if self.hosts[0] == "::1" else "127.0.0.1")
        return self.bind or (EVERY_ADDRESS_6 if ":" in "".join(self.hosts) else EVERY_ADDRESS)

    def check_ports(self, path: Path) -> None:
        """Refuse ports that cannot be listened on, as those that another process has."""
        ports = {"superlink-port": ("127.0.0.1", self.superlink_port)}
        ports["port"] = (self.listens, self.port)
        for key, (address, port) in ports.items():
            try:
                Door.listening(address, port).close()
            except OSError as error:
                renewed = ", and then bfl federation renew DIR" if key == "port" else ""
                raise ConfigurationError(
                    f"server: {key} is {port} in {path}, and it cannot listen there on {address}: "
                    f"{error.strerror or error}; allowed: another {key} in that file{renewed}"
                ) from error


class Identity(Table):
    """A client, and the server that it calls."""

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
    """Settings of a node by which its client's app decides; see ``template/node.toml``."""

    dataset: str = ""
    data_dir: PathText | None = None
    plugins_dir: PathText = ""
    allow_run_paths: bool = False
    exchange: Annotated[str, AfterValidator(lambda name: exchanges.get(name).name)] = ""
    clients_list: PathText = ""
    greatest_weight: float = Field(1.0, gt=0.0, le=1.0)
    private: bool = False


class NodeSettings(NodeTable):
    """Settings that a client's machine alone decides; see ``template/node.toml``."""

    cpus: int = Field(0, ge=0)
    task_timeout: float = Field(86400.0, gt=0.0)
    # An empty list is no way to say all, nor of use to say none.
    bundles: Annotated[tuple[Bundle, ...], Field(strict=False, min_length=1)] | None = None

    @classmethod
    def of_client(cls, path: Path, client: str) -> NodeSettings:
        """Return the settings in a client's file, with absolute paths; the defaults without it."""
        where, here = f"client {client}", path.parent.resolve()
        read = cls.parse(read_toml(path) if path.exists() else {}, where)

        def find_existing(key: str, text: str | None, default: str, kind: str = "folder") -> str:
            if not text:
                return default
            found = here / given_path(text, f"{where}: {key}")
            there = {"folder": found.is_dir, "file": found.is_file}.get(kind, found.exists)
            if not there():
                given = dataset if key == "dataset" else text
                raise ConfigurationError(
                    f"{where}: {key} is {given}, and there is no {kind} {found} on this machine"
                )
            return str(found)

        dataset = read.dataset
        plugins_dir = find_existing("plugins-dir", read.plugins_dir, str(here / "plugins"))
        kind, _, name = dataset.partition(":")
        if name and kind in OF_PATHS:
            dataset = f"{kind}:{find_existing('dataset', name, '', OF_PATHS[kind])}"
        placed = {
            "plugins_dir": plugins_dir,
            "data_dir": find_existing("data-dir", read.data_dir, str(here / "data")),
            "clients_list": find_existing("clients-list", read.clients_list, "", "file"),
            "dataset": dataset,
        }
        return read.model_copy(update=placed)
