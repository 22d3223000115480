"""Answers of nodes before the first round, as Flower's records: who they are, and their tables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pydantic
from flwr.app import ConfigRecord, RecordDict
from pydantic.dataclasses import dataclass

from bfl.federation.client_metrics import neutralize
from bfl.federation.wire import CONFIG, VERSION, WIRE_FORMAT, WireFormatError, check_version
from bfl.registry import kebab
from bfl.texts import few, spelt_alike

if TYPE_CHECKING:
    from bfl.data.datasets import Dataset

TABLE_QUERY, ADD_UP_TABLE = "query.table", "train.table"
"""Types of messages before the first round that ask for nodes' tables, and for sums over them."""

SERVER = "the server"
"""Owner of the server's table, in messages."""

LONGEST_NAME = 500
"""Most characters of a column's, a category's or a class's name in a node's own table."""

ALWAYS = {
    *("partition_id", "num_partitions", "own_examples", "code"),
    *("keeps_state", "noise_anew"),
}
"""The fields of a description that are sent also where they are empty or false."""


ClientText = Annotated[str, pydantic.AfterValidator(neutralize)]
"""A text from a client, made safe to print."""


@dataclass(frozen=True, config=pydantic.ConfigDict(strict=True))
class NodeDescription:
    """Description of a node before the first round.

    Attributes:
        own_examples: The number of examples of its own; 0: it takes its part of the run's data.
        code: The digest of the code that it runs; empty: not this package's.
        keeps_state: Whether what its client keeps outlives the node and Flower's run.
        plugins: Why the run's plugins cannot be used on it; empty: they can, as for the next two.
        data: Why the data that it would train on cannot be had.
        labels: Why the labels of its own data are not the run's.
        noise_anew: Whether the noise of an update that it makes again is drawn anew.
        reads_run_paths: Whether it is a SuperNode that looks for data where the server has them.
    """

    partition_id: pydantic.NonNegativeInt
    num_partitions: pydantic.NonNegativeInt
    own_examples: pydantic.NonNegativeInt
    code: str = ""
    keeps_state: bool = False
    plugins: ClientText = ""
    data: ClientText = ""
    labels: ClientText = ""
    noise_anew: bool = True
    reads_run_paths: bool = False

    @property
    def unfit(self) -> str:
        """Reason why it cannot take part; empty: it can."""
        return self.plugins or self.data or self.labels

    def to_content(self) -> RecordDict:
        """Return the description as a message's content."""
        entries = {name: value for name, value in vars(self).items() if value or name in ALWAYS}
        return _content({kebab(name): value for name, value in entries.items()})

    @classmethod
    def from_content(cls, content: RecordDict) -> NodeDescription:
        """Return the description in a message's content, or raise WireFormatError."""
        answer = _answer(content)
        known = {kebab(field.name): field.name for field in fields(cls)}
        try:
            return cls(**{known[key]: value for key, value in answer.items() if key in known})
        except pydantic.ValidationError as error:
            # The answer itself may be as long as a node likes.
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise WireFormatError(f"a node describes itself: {where}: {first['msg']}") from error


def _content(entries: Mapping[str, Any]) -> RecordDict:
    return RecordDict({CONFIG: ConfigRecord({VERSION: WIRE_FORMAT, **entries})})


def _answer(content: RecordDict) -> Mapping[str, Any]:
    """Return the entries of a node's answer, of this version of the wire format."""
    record: Any = content.get(CONFIG)
    if not isinstance(record, ConfigRecord):
        raise WireFormatError(f"a node answers without a record '{CONFIG}'")
    check_version(record, "a node")
    return record


@cache
def code_digest() -> str:
    """Return the SHA-256 of all modules of this project's packages, as this process finds them.

    Ray's actors and nodes may import other code than the server's; it compares digests.
    """
    sha = hashlib.sha256()
    for package in ("bfl", "clients", "strategies"):
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            root = Path(folder)
            for path in sorted(root.rglob("*.py")):
                sha.update(f"{package}/{path.relative_to(root).as_posix()}\0".encode())
                sha.update(path.read_bytes())
    return sha.hexdigest()


@dataclass(frozen=True)
class TableDescription:
    """Description of a node's own table.

    Attributes:
        columns: The categories of each column by its name; none: it holds numbers.
    """

    columns: dict[str, tuple[str, ...]]
    class_names: tuple[str, ...]

    @classmethod
    def of(cls, dataset: Dataset) -> TableDescription:
        """Return the description of a table that has been read."""
        columns = dataset.encoding.columns if dataset.encoding else ()
        return cls({column.name: column.categories for column in columns}, dataset.class_names)

    def to_content(self) -> RecordDict:
        """Return the description as a message's content."""
        return _content({"table": json.dumps(asdict(self))})

    @classmethod
    def from_content(cls, content: RecordDict) -> TableDescription:
        """Return the description in a message's content, or raise WireFormatError."""
        text = str(_answer(content).get("table"))
        try:
            found = pydantic.TypeAdapter(cls).validate_json(text)
        except pydantic.ValidationError as error:
            raise WireFormatError("a node says no columns of its table") from error
        for name in (*found.class_names, *found.columns, *chain(*found.columns.values())):
            if len(name) > LONGEST_NAME or not name.isprintable():
                raise WireFormatError(
                    f"a node's table has the name {name[:40]!r}; allowed: what can be printed, of "
                    f"at most {LONGEST_NAME} characters"
                )
        return found


def compare_tables(
    server: TableDescription, tables: Mapping[str, TableDescription]
) -> tuple[list[str], list[str]]:
    """Return what keeps tables, by their owners, from going with the server's, and what is odd."""
    problems, odd = [], []
    for owner, table in tables.items():
        for name in dict.fromkeys([*server.columns, *table.columns]):
            kinds = (of.columns.get(name) for of in (server, table))
            ours, theirs = ("nothing" if k is None else "texts" if k else "numbers" for k in kinds)
            if ours != theirs:
                has = f"has {theirs} in" if name in table.columns else "lacks"
                problems.append(
                    f"{owner} {has} the column '{name}', and the server has {ours} there; allowed: "
                    "the same columns in all tables, or columns-left-out"
                )
    owners = _owners({o: table.class_names for o, table in {SERVER: server, **tables}.items()})
    for twins in spelt_alike(owners):
        if not {*twins} <= {*server.class_names}:
            whose = " and ".join(f"'{name}' ({owners[name]})" for name in twins)
            problems.append(f"{whose} are spelt alike; allowed: one spelling of a class")
    for name, whose in owners.items():
        if name not in server.class_names or whose == SERVER:
            odd.append(f"class '{name}' is in no table but that of {whose}")
    for column in [] if problems else server.columns:
        owners = _owners({owner: table.columns[column] for owner, table in tables.items()})
        for twins in spelt_alike(owners):
            whose = " and ".join(f"'{name}' ({owners[name]})" for name in twins)
            odd.append(f"column '{column}': {whose} are spelt alike, and count as {len(twins)}")
    return problems, odd


def _owners(names: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return in words, by each name, which owners have it, by all names of each owner."""
    having: dict[str, list[str]] = {}
    for owner, own in names.items():
        for name in own:
            having.setdefault(name, []).append(owner)
    return {name: few(owners, 3) for name, owners in having.items()}
