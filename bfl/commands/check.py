"""The command ``bfl check``: what a run finds in its data, and all that it would refuse or tell."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bfl.commands.terminal import add_run_config_to
from bfl.configuration import resolve
from bfl.configuration.keys import Keys
from bfl.configuration.sources import read_run_config
from bfl.data.datasets import Dataset, Reading, cached_dataset, dataset_warnings
from bfl.data.datasets.base import Labels, rows_of
from bfl.data.datasets.encoding import INDICATOR, MEAN, REFUSE, count_missing_cells
from bfl.data.datasets.reading import SUMMED
from bfl.engine.flower.app import FlowerApp, Values
from bfl.errors import ConfigurationError, DataError, unknown_name
from bfl.experiments.run import simulation
from bfl.printing import doing
from bfl.texts import counted, few, printable, spelt_alike

MOST_SITES = 20  # values of a column that have lines of their own
LOOK_AT = "look at: "  # begins a line that a user may have to act upon
POLICIES = {
    REFUSE: "a run refuses cells without a value",
    MEAN: "a cell without a value counts as the training rows' mean, or most frequent category",
    INDICATOR: "a cell without a value is filled, and an input more of its column says where",
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


def check_run(values: Values, nodes: int = 0, *, check_data: bool = True) -> Dataset | None:
    """Print what a run's data hold and what it would tell; refuse all that it would, a line each.

    Behind a refusal of some cells or columns the data are read on with these filled or left out,
    and behind one of keys without these.

    Args:
        nodes: The number of nodes, which alone know what they have; 0: a simulation.
        check_data: Whether other data of the run must be on this machine.
    """
    doing("configuration and data are read")
    app, refused, given = FlowerApp.own(), list[str](), values
    try:
        configuration = resolve(app.run_config(values), check_data=check_data)
    except ConfigurationError as error:
        refused += str(error).splitlines()
        said = " ".join(line.partition(";")[0] for line in refused)
        named = [key for key in values if re.search(rf"\b{re.escape(key)}\b", said)]
        named.sort(key=lambda key: not hasattr(Reading, key.replace("-", "_")))
        values = {key: of for key, of in values.items() if key not in named or key == "dataset"}
        # Those that are named and not to blame come back, first what says how data are read.
        for more in ({}, *({key: given[key]} for key in named)):
            try:
                configuration = resolve(app.run_config({**values, **more}), check_data=check_data)
                values = {**values, **more}
            except ConfigurationError:  # of the data set, or of what is left of the keys
                if not more:
                    raise error from None
    is_whole = not refused
    keys, dataset = configuration.keys, None
    summed = nodes and not keys.table_columns  # nodes add up what columns of tables hold
    reading = replace(keys.reading, table_columns=SUMMED) if summed else keys.reading
    while dataset is None:
        try:
            dataset = cached_dataset(keys.dataset, keys.data_dir, reading)
        except (ConfigurationError, DataError) as error:
            refused.append(str(error))
            before, reading = reading, _milder(reading, str(error))
            if reading == before:
                break
    if dataset:
        if nodes and check_data and dataset.split_here:
            dataset = dataset.all_for_testing()
        train, test = len(dataset.train_labels), len(dataset.test_labels)
        examples = f"{train} training and {test} test examples"
        if not train:
            examples = f"{test} examples, all for testing if clients have their own data"
        print(f"{values.get('dataset', keys.dataset)}: {examples}")
        lines = list(_contents(dataset, keys, getattr(configuration.partition, "site_column", "")))
        milder_values: Values = {**values, **reading.values()}
        try:
            if not is_whole:
                column = str(given.get("partition", "")).partition("column:")[2]
                if column and not nodes and column not in dataset.train_columns:
                    unknown = unknown_name("column", column, dataset.train_columns)
                    refused.append(f"partition: {unknown}")
                found = dataset_warnings(dataset)
            elif nodes:
                milder = resolve(app.run_config(milder_values), check_data=check_data)
                found = app.load(app.server).check_before_start(milder, nodes, own_data=True)
            else:
                found = _of_simulation(app, milder_values, lines.append)
        except (ConfigurationError, DataError) as error:
            refused += str(error).splitlines()
            found = dataset_warnings(dataset)
        things = [line for line in lines if line.startswith(LOOK_AT)]
        things += [f"{LOOK_AT}{line}" for line in found]
        print(*(line for line in lines if line not in things), *things, sep="\n")
        if not refused:
            verdict = "nothing here is refused" if nodes else "the run would start"
            print(f"{verdict}; {counted(len(things), 'thing')} to look at")
    if refused:
        raise DataError("\n".join(dict.fromkeys(refused)))
    return dataset


def _of_simulation(app: FlowerApp, values: Values, say: Callable[[str], None]) -> list[str]:
    """Return what ``bfl run`` warns of before its first round, and say what it says."""
    try:
        count, values = simulation.agree_on_clients(
            None, values, app.defaults, lambda: simulation.clients_in_the_data(app, values)
        )
    except ConfigurationError:  # of the partition, which is refused below with all else
        count = simulation.DEFAULT_SUPERNODES
    values = simulation.with_closing(app, values, say)
    backend = simulation.chosen_backend("auto", app, values, {})
    return simulation.check(app, values, count, backend=backend, say=say)


def _milder(reading: Reading, refusal: str) -> Reading:
    """Return how data are read with what a refusal names filled, or else left out."""
    if reading.missing == REFUSE and "missing=" in refusal:
        return replace(reading, missing=MEAN)
    left_out = reading.left_out
    # With the rows that hold them, a refusal counts all columns of its kind.
    named = re.findall(r"'([^',]+)'(?= \d)", refusal)
    named = named or re.findall(r"(?<!unknown )column '([^',]+)'", refusal)
    more = [name for name in dict.fromkeys(named) if name not in (*left_out, reading.target)]
    return replace(reading, columns_left_out=",".join([*left_out, *more]))


def _contents(dataset: Dataset, keys: Keys, site: str) -> Iterator[str]:
    """Yield lines on inputs and classes, each also of the values of a column; and on gaps."""
    site = site or keys.test_sites.partition(":")[0]
    for column in dataset.train_columns if not (site or dataset.encoding) else ():
        yield f'{LOOK_AT}images have a {column}: partition="column:{column}" makes each a client'
    labels = np.concatenate([dataset.train_labels, dataset.test_labels])
    parts = [part.get(site, ()) for part in (dataset.train_columns, dataset.test_columns)]
    sites, tested = np.concatenate(parts), np.arange(labels.size) >= dataset.train_labels.size
    names = [name for name in np.unique(sites) if name == name and name != ""]  # no empty cells
    of_site, tested = labels[: len(sites)], tested[: len(sites)]  # test/CLASS is of no site
    tests = {name: of_site[(sites == name) & tested] for name in names}
    classed = names if dataset.target is None else []  # a half of numbers is no class
    one_class = [name for name in classed if len({*tests[name].tolist()}) == 1]
    owned = {name: np.bincount(of_site[sites == name]) for name in names}
    ranks = {n: (n not in one_class, (own > 0).sum(), own.sum()) for n, own in owned.items()}
    worst = sorted(names, key=ranks.__getitem__)
    shown = [name for name in names if name in worst[:MOST_SITES]]
    if dataset.encoding:
        columns = [column.name for column in dataset.encoding.columns]
        yield f"{counted(len(columns), 'input')}: {few(columns)}"
        yield from _gaps(dataset, columns, keys.missing, site, shown)
    else:
        yield f"images of {' x '.join(map(str, dataset.image_shape))}"
        tested_images = {hash(image.tobytes()) for image in dataset.test_images}
        if twice := sum(hash(each.tobytes()) in tested_images for each in dataset.train_images):
            yield f"{LOOK_AT}{counted(twice, 'training image')} also among the test images"
    if dataset.target is None:
        named = _counts(dataset, labels)
        yield f"{dataset.num_classes} classes (all {labels.size} examples): {named}"
    for alike in spelt_alike(list(map(str, names))):
        yield f"{LOOK_AT}values of {site} that differ in capitals or spaces alone: {few(alike)}"
    for name in shown:
        where, own, test = f"{site} {printable(str(name))}", of_site[sites == name], tests[name]
        of_tests = f"; {test.size} to test: {_counts(dataset, test)}" if test.size else ""
        yield f"{where}: {counted(own.size, 'example')}: {_counts(dataset, own)}{of_tests}"
        absent = np.setdiff1d(np.arange(dataset.num_classes), own)
        if absent.size and dataset.target is None:
            classes = few([f"“{dataset.class_names[c]}”" for c in absent])
            yield f"{LOOK_AT}{where}: no example of {classes}"
        if name in one_class:
            yield f"{LOOK_AT}{where}: all {test.size} to test are {dataset.class_names[test[0]]}"
    if hidden := len(names) - len(shown):
        more = f"{max(0, len(one_class) - MOST_SITES)} with examples to test of one class"
        yield f"{LOOK_AT}{hidden} more values of {site} are not shown, {more}"


def _counts(dataset: Dataset, labels: Labels) -> str:
    counts = np.bincount(labels, minlength=dataset.num_classes)
    named = zip(dataset.class_names, counts, strict=True)
    return few([f"{name} {n} ({n / labels.size:.0%})" for name, n in named])


def _gaps(
    dataset: Dataset, columns: list[str], missing: str, site: str, shown: Collection[Any]
) -> Iterator[str]:
    rows = rows_of(dataset)
    sites = [(value, rows[rows[site] == value]) for value in shown]
    gaps = count_missing_cells(rows, columns)
    yield f'missing="{missing}": {POLICIES[missing]}' if gaps else "every row has all inputs"
    for column, count in gaps.items() if missing == MEAN else ():
        if count > len(rows) / 2:
            empty = f"{column} is empty in {count} of {len(rows)} rows"
            yield f'{LOOK_AT}{empty}: missing="{INDICATOR}" keeps that information'
    for name, own in [(None, rows), *sites]:
        where = "all" if name is None else f"{site} {printable(str(name))}"
        if name is not None and (gaps := count_missing_cells(own, columns)):
            yield f"without a value, of {len(own)} rows ({where}): {_listed(gaps)}"
        alone = {}
        for column in (c for c in columns if c != site and len(own) > 1):
            values = own[column][own[column].ne("")].dropna()
            if values.nunique() == 1:
                value = values.iloc[0]
                text = f"{value:g}" if isinstance(value, float) else printable(str(value))
                alone[column] = f"{text} in {len(values)}"
        if alone:
            yield f"one value in all rows that have one ({where}): {_listed(alone)}"


def _listed(values: Mapping[str, object]) -> str:
    return few([f"{name} {value}" for name, value in values.items()], 30)
