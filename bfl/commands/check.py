"""The command ``bfl check``: what a run finds in its data, and all that it would refuse or tell."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bfl.commands.terminal import add_run_config_to
from bfl.configuration import resolve
from bfl.configuration.sources import read_run_config
from bfl.data.datasets import Dataset, Reading, load_dataset, said_of
from bfl.errors import ConfigurationError, DataError
from bfl.printing import doing
from bfl.texts import counted, few

KEYS = "as for bfl run, whose keys say how data are read, such as target and image-size"


def add_to(check: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl check``."""
    check.add_argument("data", help="a data set as in the key dataset, such as table:rows.csv")
    add_run_config_to(check, KEYS)
    check.set_defaults(run=check_data)


def check_data(given: argparse.Namespace) -> None:
    """Print what is in a data set; refuse it with all that a run would refuse one by one."""
    doing("configuration and data are read")
    print(report(given.data, *reading_of(given.run_config)))


def reading_of(run_config: Sequence[str]) -> tuple[str, Reading]:
    """Return where archives lie, and how a run with such a configuration reads its data."""
    keys = resolve(read_run_config(run_config), check_data=False).keys
    return keys.data_dir, keys.reading


def report(word: str, data_dir: str, reading: Reading) -> str:
    """Return lines that say what a data set holds, and what a run would tell of it.

    Raises:
        DataError: With each problem in a line of its own. Behind one of a column the data are read
            on without it.
    """
    refused: list[str] = []
    dataset = None
    while dataset is None:
        try:
            dataset = load_dataset(word, data_dir, reading)
        except (ConfigurationError, DataError) as error:
            refused.append(str(error))
            milder = _without(reading, str(error))
            if milder == reading:
                break
            reading = milder
    lines = _found(dataset) + said_of(dataset) if dataset else []
    if refused:
        raise DataError("\n".join([*refused, *(f"besides: {line}" for line in lines)]))
    return "\n".join(lines)


def _without(reading: Reading, refusal: str) -> Reading:
    """Return how data are read without what a refusal names; as before where it names nothing."""
    left_out = reading.columns_left_out
    # With the rows that hold them, a refusal counts all columns of its kind.
    named = re.findall(r"'([^',]+)'(?= \d)", refusal)
    named = named or re.findall(r"(?<!unknown )column '([^',]+)'", refusal)
    more = [name for name in dict.fromkeys(named) if name not in (*left_out, reading.target)]
    return replace(reading, left_out=",".join([*left_out, *more]))


def _found(dataset: Dataset) -> list[str]:
    train, test = len(dataset.train_labels), len(dataset.test_labels)
    lines = [f"{dataset.name}: {train} training and {test} test examples"]
    if dataset.encoding:
        columns = [column.name for column in dataset.encoding.columns]
        lines.append(f"{counted(len(columns), 'input')}: {few(columns)}")
    else:
        lines.append(f"images of {' x '.join(map(str, dataset.image_shape))}")
    if dataset.target is None:
        counts = np.bincount(dataset.train_labels, minlength=dataset.num_classes)
        named = [f"{name} ({n})" for name, n in zip(dataset.class_names, counts, strict=True)]
        lines.append(f"{dataset.num_classes} classes (training examples): {few(named)}")
    return lines
