"""The command ``bfl check``: what a run finds in its data, and all that it would refuse or tell."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from bfl.commands.terminal import add_run_config_to
from bfl.configuration import Configuration, resolve
from bfl.configuration.sources import read_run_config
from bfl.data.datasets import Dataset, Reading, cached_dataset, said_of
from bfl.data.datasets.encoding import INDICATOR, MEAN, REFUSE, missing_cells
from bfl.engine.flower import FlowerApp, Values
from bfl.errors import ConfigurationError, DataError
from bfl.experiments.run import simulation
from bfl.printing import doing
from bfl.texts import counted, few, printable

MOST_SITES = 20
"""The most values of a column for each of which a line says what is missing."""

POLICIES = {
    REFUSE: "a run refuses them",
    MEAN: "each counts as the mean, or the most frequent category, of the training rows",
    INDICATOR: "each is filled, and an input more of its column says where",
}
"""Fate of cells without a value, by the key ``missing``."""


def add_to(check: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl check``."""
    check.add_argument("data", help="a data set as in the key dataset, such as table:rows.csv")
    add_run_config_to(check, "the run's keys, as for bfl run: all that it would refuse is said")
    check.set_defaults(run=check_data)


def check_data(given: argparse.Namespace) -> None:
    """Print what is in a data set; refuse it with all that a run would refuse one by one."""
    check_run({**read_run_config(given.run_config), "dataset": given.data})


def check_run(values: Values, clients: int = 0) -> None:
    """Print what is in a run's data, and all that the run would tell or refuse.

    Args:
        clients: The number of nodes, which alone know what they have; 0: those of a simulation.
    """
    doing("configuration and data are read")
    app = FlowerApp.own()

    def lines_of_run(reading: Reading) -> list[str]:
        changed: Values = {**values, **reading.values()}
        if not clients:
            return _of_simulation(app, changed)
        configuration, server = resolve(app.run_config(changed)), app.load_server()
        return list(server.check_before_start(configuration, clients, own_data=True))

    _report(resolve(app.run_config(values)), str(values["dataset"]), lines_of_run)


def check_own_data(dataset: str, data_dir: str, run_config: Sequence[str]) -> Dataset | None:
    """Print what is in a node's own data, and all that a run would refuse; return them.

    Without a ``run_config`` nothing is said of the network.
    """
    app = FlowerApp.own()
    wanted = resolve(app.run_config(read_run_config(run_config)), check_data=False)
    known = {"dataset": dataset, "data_dir": data_dir, "test_sites": ""}
    configuration = wanted.with_known(**known)

    def lines_of_run(reading: Reading) -> list[str]:
        found = cached_dataset(dataset, data_dir, reading)
        if run_config:
            app.load_server().check_own_data(configuration, found, 1)
        return said_of(found)

    return _report(configuration, dataset, lines_of_run)


def _of_simulation(app: FlowerApp, values: Values) -> list[str]:
    """Return the lines of ``bfl run`` before its first round."""
    lines: list[str] = []
    try:
        count, values = simulation.agree_on_clients(
            None, values, app.defaults, lambda: simulation.clients_in_the_data(app, values)
        )
    except ConfigurationError:  # of the partition, which is refused below with all else
        count = simulation.DEFAULT_SUPERNODES
    values = simulation.with_closing(app, values, lines.append)
    backend = simulation.chosen_backend("auto", app, values, {})
    return lines + simulation.check(app, values, count, backend=backend, say=lines.append)


def _report(
    configuration: Configuration, word: str, lines_of_run: Callable[[Reading], list[str]]
) -> Dataset | None:
    """Print what a data set holds and what its run says; refuse all that is wrong, a line each.

    Behind a refusal of some cells or columns the data are read on with these filled or left out.
    """
    keys, refused = configuration.keys, list[str]()
    reading, dataset = keys.reading, None
    while dataset is None:
        try:
            dataset = cached_dataset(keys.dataset, keys.data_dir, reading)
        except (ConfigurationError, DataError) as error:
            refused.append(str(error))
            milder = _milder(reading, str(error))
            if milder == reading:
                break
            reading = milder
    if dataset:
        site = getattr(configuration.partition, "site_column", "")
        for line in (f"{word}: {_sizes(dataset)}", *_contents(dataset, keys.missing, site)):
            print(line)
        try:
            lines = lines_of_run(reading)
        except (ConfigurationError, DataError) as error:
            refused += str(error).splitlines()
            lines = said_of(dataset)
        for line in dict.fromkeys(lines):
            print(line)
    if refused:
        raise DataError("\n".join(dict.fromkeys(refused)))
    return dataset


def _milder(reading: Reading, refusal: str) -> Reading:
    """Return how data are read with what a refusal names filled, or else left out."""
    if reading.missing == REFUSE and "missing=" in refusal:
        return replace(reading, missing=MEAN)
    left_out = reading.columns_left_out
    # With the rows that hold them, a refusal counts all columns of its kind.
    named = re.findall(r"'([^',]+)'(?= \d)", refusal)
    named = named or re.findall(r"(?<!unknown )column '([^',]+)'", refusal)
    more = [name for name in dict.fromkeys(named) if name not in (*left_out, reading.target)]
    return replace(reading, left_out=",".join([*left_out, *more]))


def _sizes(dataset: Dataset) -> str:
    return f"{len(dataset.train_labels)} training and {len(dataset.test_labels)} test examples"


def _contents(dataset: Dataset, missing: str, site: str) -> Iterator[str]:
    """Yield lines on inputs and classes; of a table on its gaps, also of each value of a column."""
    if dataset.encoding:
        columns = [column.name for column in dataset.encoding.columns]
        yield f"{counted(len(columns), 'input')}: {few(columns)}"
        yield from _gaps(dataset, columns, missing, site)
    else:
        yield f"images of {' x '.join(map(str, dataset.image_shape))}"
    if dataset.target is None:
        counts = np.bincount(dataset.train_labels, minlength=dataset.num_classes)
        named = [f"{name} ({n})" for name, n in zip(dataset.class_names, counts, strict=True)]
        yield f"{dataset.num_classes} classes (training examples): {few(named)}"


def _gaps(dataset: Dataset, columns: list[str], missing: str, site: str) -> Iterator[str]:
    import pandas

    parts = [pandas.DataFrame(dict(c)) for c in (dataset.train_columns, dataset.test_columns)]
    rows = pandas.concat(parts, ignore_index=True)
    sites = rows.groupby(site) if site in rows else ()
    gaps = _listed(missing_cells(rows, columns))
    yield f'missing="{missing}": {POLICIES[missing]}' if gaps else "every row has all inputs"
    for name, own in islice([("", rows), *sites], 1 + MOST_SITES):
        where = f"{site} {printable(str(name))}" if name != "" else "all"
        if gaps := _listed(missing_cells(own, columns)):
            yield f"without a value, of {len(own)} rows ({where}): {gaps}"
        alone = {}
        for column in (c for c in columns if c != site and len(own) > 1):
            values = own[column][own[column].ne("")].dropna()
            if values.nunique() == 1:
                value = values.iloc[0]
                shown = f"{value:g}" if isinstance(value, float) else printable(str(value))
                alone[column] = f"{shown} in {len(values)}"
        if alone:
            yield f"one value in all rows that have one ({where}): {_listed(alone)}"


def _listed(values: Mapping[str, object]) -> str:
    return few([f"{name} {value}" for name, value in values.items()], 30)
