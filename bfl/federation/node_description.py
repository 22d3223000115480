"""Answers of nodes before the first round, as Flower's records: who they are, and their network.

A server that builds no network asks its clients for the parameters. Nodes on other code are found
out by its digest.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import pydantic
from flwr.app import ConfigRecord, RecordDict

from bfl.federation.client_metrics import neutralized
from bfl.federation.wire import CONFIG, VERSION, WIRE_FORMAT, WireFormatError, check_version
from bfl.posteriors import Manifest
from bfl.posteriors.manifest import LEAST_DIMENSIONS, Initialization, Parameter

NETWORK_QUERY = "query.network"

MOST_PARAMETERS = 2**31
"""The most parameters that a network may have: 8 GiB for one float32 vector of them."""

MOST_DIMENSIONS = 32
"""The most dimensions that a tensor may have: NumPy has an end, and no network comes near it."""


@dataclass(frozen=True)
class NetworkQuery:
    """Query that the server sends.

    Attributes:
        configuration: The run's configuration, as JSON.
        image_shape: Height, width and channels of an image.
    """

    configuration: str
    image_shape: tuple[int, int, int]
    num_classes: int

    def to_content(self) -> RecordDict:
        """Return the question as a message's content."""
        values: dict[str, Any] = {
            VERSION: WIRE_FORMAT,
            "configuration": self.configuration,
            "image-shape": list(self.image_shape),
            "num-classes": self.num_classes,
        }
        return RecordDict({CONFIG: ConfigRecord(values)})

    @classmethod
    def from_content(cls, content: RecordDict) -> NetworkQuery:
        """Return the question in a message's content.

        Raises:
            WireFormatError: The server speaks another version of the wire format.
        """
        record: Any = content[CONFIG]
        check_version(record, "the server")
        height, width, channels = record["image-shape"]
        return cls(
            str(record["configuration"]), (height, width, channels), int(record["num-classes"])
        )


def manifest_content(manifest: Manifest) -> RecordDict:
    """Return a client's answer as a message's content."""
    return RecordDict(
        {CONFIG: ConfigRecord({VERSION: WIRE_FORMAT, "manifest": manifest.to_json()})}
    )


def _known_initialization(word: Any) -> Any:
    """Raise ``ValueError`` for a word that is no initialization, naming those there are."""
    if word not in list(LEAST_DIMENSIONS):
        raise ValueError(f"allowed: {', '.join(LEAST_DIMENSIONS)}")
    return word


class _SaidParameter(pydantic.BaseModel):
    """A tensor as a client describes it: the fields and bounds of ``Parameter``."""

    model_config = pydantic.ConfigDict(strict=True, extra="forbid")

    name: str = pydantic.Field(min_length=1)
    shape: Annotated[tuple[pydantic.PositiveInt, ...], pydantic.Field(max_length=MOST_DIMENSIONS)]
    gaussian: bool
    initialization: Annotated[Initialization, pydantic.BeforeValidator(_known_initialization)]
    minimum: pydantic.FiniteFloat | None = None
    trainable: bool = True


_SAID = pydantic.TypeAdapter(
    Annotated[tuple[_SaidParameter, ...], pydantic.Field(min_length=1, fail_fast=True)]
)


def manifest_from_content(content: RecordDict) -> Manifest:
    """Return the manifest in a client's answer: that of a network which this machine could hold.

    Raises:
        WireFormatError: There is none in it; the message says what is wrong.
    """
    record: Any = content.get(CONFIG, {})
    check_version(record, "a node")
    text = record.get("manifest")
    if not isinstance(text, str):
        raise _no_parameters("the answer has no 'manifest'")
    try:
        # Unlike the JSON of the standard library, this one takes no stack for what is nested.
        said = _SAID.validate_json(text)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise _no_parameters(f"{where}: {first['msg']}" if where else first["msg"]) from error
    manifest = Manifest(tuple(Parameter(**dict(parameter)) for parameter in said))
    _check_network(manifest)
    return manifest


def _check_network(manifest: Manifest) -> None:
    names: set[str] = set()
    size = 0
    for parameter in manifest:
        if parameter.name in names:
            raise _no_parameters(f"there are two parameters '{parameter.name}'")
        least = LEAST_DIMENSIONS[parameter.initialization]
        if len(parameter.shape) < least:
            raise _no_parameters(
                f"parameter '{parameter.name}' has {len(parameter.shape)} dimensions; "
                f"initialization '{parameter.initialization}' takes {least} or more"
            )
        names.add(parameter.name)
        size += parameter.size
        if size > MOST_PARAMETERS:
            raise _no_parameters(
                f"it has more than {MOST_PARAMETERS} of them by parameter '{parameter.name}'"
            )


def _no_parameters(problem: str) -> WireFormatError:
    return WireFormatError(f"a node says no parameters of its network: {problem}")


PERSONAL_MODELS = "personal-models"
"""Entry of a query where clients train personal models, for which a node may have its own word."""


@dataclass(frozen=True)
class NodeDescription:
    """Description of a node before the first round.

    Attributes:
        own_examples: The size of the data of its own that it holds; 0: it takes its part of the
            run's data set.
        code: The digest of the code that it runs; empty: not this package's.
        allows_attack: Whether it would play a hostile client.
        keeps_state: Whether what its client keeps outlives the node and Flower's run.
        noise_anew: Whether the noise of an update that it makes again is drawn anew.
        plugins: Why the run's plugins cannot be used on it; empty: they can, or there are none.
        data: Why the data that it would train on cannot be had; empty: they can, or were not asked.
        labels: Why the labels of its own data are not the run's; empty: they are, or it has none.
        personal_model: Why a personal model of its own cannot be trained on the data; empty: it
            can, or there is none, or was not asked.
        reads_run_paths: Whether it is a SuperNode that looks for data where the server has them.
    """

    partition_id: int
    num_partitions: int
    own_examples: int
    code: str
    allows_attack: bool = False
    keeps_state: bool = False
    plugins: str = ""
    data: str = ""
    labels: str = ""
    personal_model: str = ""
    noise_anew: bool = True
    reads_run_paths: bool = False

    @property
    def unfit(self) -> str:
        """Reason why it cannot take part; empty: it can."""
        return next(filter(None, self._problems.values()), "")

    @property
    def _problems(self) -> dict[str, str]:
        return {
            "plugins": self.plugins,
            "data": self.data,
            "labels": self.labels,
            "personal-model": self.personal_model,
        }

    def to_content(self) -> RecordDict:
        """Return the description as a message's content."""
        said: dict[str, Any] = {
            VERSION: WIRE_FORMAT,
            "partition-id": self.partition_id,
            "num-partitions": self.num_partitions,
            "own-examples": self.own_examples,
            "code": self.code,
            "allows-attack": self.allows_attack,
            "keeps-state": self.keeps_state,
            "noise-anew": self.noise_anew,
            **({"reads-run-paths": True} if self.reads_run_paths else {}),
            **{name: problem for name, problem in self._problems.items() if problem},
        }
        return RecordDict({CONFIG: ConfigRecord(said)})

    @classmethod
    def from_content(cls, content: RecordDict) -> NodeDescription:
        """Return the description in a message's content.

        Raises:
            WireFormatError: It is not as docs/wire-format.md says.
        """
        if not isinstance(content.get(CONFIG), ConfigRecord):
            raise WireFormatError(f"a node describes itself without a record '{CONFIG}'")
        record: Any = content[CONFIG]
        check_version(record, "a node")
        for key in ("partition-id", "num-partitions", "own-examples"):
            if type(record.get(key)) is not int or record[key] < 0:
                raise WireFormatError(
                    f"a node says {key} {record.get(key)!r} of itself; expected a whole number "
                    "from 0"
                )
        return cls(
            partition_id=record["partition-id"],
            num_partitions=record["num-partitions"],
            own_examples=record["own-examples"],
            code=str(record.get("code", "")),
            allows_attack=record.get("allows-attack") is True,
            keeps_state=record.get("keeps-state") is True,
            plugins=neutralized(str(record.get("plugins", ""))),
            data=neutralized(str(record.get("data", ""))),
            labels=neutralized(str(record.get("labels", ""))),
            personal_model=neutralized(str(record.get("personal-model", ""))),
            noise_anew=record.get("noise-anew") is not False,
            reads_run_paths=record.get("reads-run-paths") is True,
        )


PACKAGES = ("bfl", "clients", "strategies")


@cache
def code_digest() -> str:
    """Return the SHA-256 of all modules of this project's packages, as this process finds them.

    Flower's Ray actors import from wherever the engine was started, which need not be the code
    that the server runs; the server compares digests before the first round.
    """
    sha = hashlib.sha256()
    for package in PACKAGES:
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            root = Path(folder)
            for path in sorted(root.rglob("*.py")):
                sha.update(f"{package}/{path.relative_to(root).as_posix()}\0".encode())
                sha.update(path.read_bytes())
    return sha.hexdigest()
