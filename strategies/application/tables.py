"""Columns of tables that nodes hold, by sums over all their rows before the first round."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp import Grid

from bfl.closing.base import greatest, sums_as_posterior
from bfl.configuration import Configuration
from bfl.data.datasets import Dataset, encoding
from bfl.data.datasets.reading import COLUMNS, SUMMED
from bfl.errors import ConfigurationError
from bfl.federation import node_description
from bfl.federation.wire import CONFIG
from bfl.texts import few
from strategies.closing import SumsRequest, sums_of_clients
from strategies.federation import Federation
from strategies.flower_clients import FlowerClients
from strategies.method import ClientOptions, Method, RunSupport
from strategies.server_state import ServerState


def can_sum_columns(configuration: Configuration, dataset: Dataset) -> bool:
    """Return whether nodes with tables of their own are to add up what their columns hold.

    Sums have no noise, so a run with noise takes the columns from the key ``table-columns``.
    """
    given = configuration.keys.table_columns
    return bool(dataset.encoding) and not given and not configuration.hides_measurements


def sum_columns(
    configuration: Configuration,
    dataset: Dataset,
    grid: Grid,
    federation: Federation,
    say: Callable[[str], None],
    warnings: list[str],
) -> str:
    """Return the key ``table-columns`` by sums over the tables of all nodes.

    Args:
        dataset: The server's own table, whose means and deviations sums are taken around.
        warnings: Gets what may be misspelt in the tables.

    Returns:
        Nothing where no node has a table of its own.

    Raises:
        ConfigurationError: The tables do not go together.
        RunError: A client has not answered.
    """
    own = [p for p, each in federation.descriptions.items() if each.own_examples and each.code]
    if not own:
        return ""
    keys = configuration.keys
    table = node_description.TableDescription.of(dataset)
    question: Any = {**table.to_content()[CONFIG]}
    question |= replace(keys.reading, table_columns=SUMMED).values()
    tables = federation.ask(
        grid,
        node_description.TABLE_QUERY,
        dict.fromkeys(own, RecordDict({CONFIG: ConfigRecord(question)})),
        lambda reply: node_description.TableDescription.from_content(reply.content),
        keys,
        "before round 1, asked for the columns of their tables",
    )
    by_name = {federation.name_of(client): own for client, own in tables.items()}
    if others := [federation.name_of(p) for p in range(federation.size) if p not in tables]:
        raise ConfigurationError(
            f"{few([*by_name])} have tables of their own, and {few(others)} none; allowed: a table "
            "for each of them, or for none"
        )
    problems, odd = node_description.compare_tables(table, by_name)
    if problems:
        raise ConfigurationError("\n".join(problems))
    warnings += odd
    names, columns = _merge(dataset, [*tables.values()])
    options = ClientOptions(
        min_clients=federation.size,
        round_retries=keys.round_retries,
        max_examples=keys.max_examples,
        configuration=configuration,
        num_classes=len(names),
    )
    clients = FlowerClients(
        grid, federation, options, RunSupport(), silence=keys.client_timeout, warn=say
    )
    clients.num_examples = {c: n for c, n in federation.own_examples.items() if n}  # all rows
    clients.more = ConfigRecord({COLUMNS: json.dumps([asdict(column) for column in columns])})
    expected = sums_as_posterior(np.zeros(encoding.sums_size(columns)))
    request = SumsRequest(
        method=Method.of(configuration),
        state=ServerState.first(expected, federation.size),
        partition_ids=range(federation.size),
        message_type=node_description.ADD_UP_TABLE,
        name="sums over tables",
        expected=expected,
        check=partial(_problem, columns),
        vectors=(),
    )
    _, total = sums_of_clients(request, clients)
    constant = encoding.CONSTANT if configuration.exchange.secure_sums else 0.0
    summed = encoding.finish(total, columns, keys.dataset, keys.missing, constant)
    found = [asdict(column) for column in summed]
    for column in summed if constant else ():
        if not column.categories and column.deviation == 1.0:
            say(
                f"column '{column.name}' counts as one value: masked sums see no deviation below "
                "1e-5 of that of the server's table"
            )
    say(f"columns by sums over {round(total[0]):,} training rows of {federation.size} clients")
    content = {"class-names": names, "columns": found[: len(columns) - bool(dataset.target)]}
    return json.dumps({**content, **({"target": found[-1]} if dataset.target else {})})


def _merge(
    dataset: Dataset, tables: Sequence[node_description.TableDescription]
) -> tuple[list[str], tuple[encoding.Column, ...]]:
    """Return the classes and columns of all tables, with the server's means and deviations."""
    reference = [
        encoding.Column(
            column.name,
            tuple(sorted({kind for table in tables for kind in table.columns[column.name]})),
            column.mean,
            column.deviation,
        )
        for column in (dataset.encoding.columns if dataset.encoding else ())
    ]
    if dataset.target:
        return list(dataset.class_names), (*reference, dataset.target)
    names = {*dataset.class_names, *(name for t in tables for name in t.class_names)}
    whole = all(name.removeprefix("-").isdecimal() for name in names)
    return sorted(names, key=lambda name: (int(name) if whole else 0, name)), tuple(reference)


def _problem(
    columns: tuple[encoding.Column, ...], sums: npt.NDArray[Any], examples: int
) -> str | None:
    found = np.asarray(sums, np.float64)
    if column := encoding.impossible_column(found, columns, examples):
        return f"no {examples} rows have such sums of column '{column}'"
    if np.abs(found).max() > greatest(examples) * (1 + 1e-6):
        return "sums of numbers too far from those of the server's table"
    return None
