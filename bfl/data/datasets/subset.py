"""Parts of a data set with the same mixture of classes, and the parts for training and testing."""

from __future__ import annotations

import dataclasses

import numpy as np

from bfl import randomness
from bfl.data.datasets.base import Dataset, Labels
from bfl.data.datasets.reading import Reading
from bfl.data.partitions.base import Columns
from bfl.errors import ConfigurationError, DataError, unknown_name


def stratified_positions(
    labels: Labels, amount: float, key: str, seed: int = 0, *, given_by: str = ""
) -> Labels:
    """Return the ascending positions (n,) of a part that has the mixture of classes of them all.

    In a random order that is always the same, example r of the N_c of class c, counted from 0,
    takes the place (r + ½)/N_c; the part is the n examples of the first places. So each class has
    its share of n up to rounding (Webster's apportionment), and a smaller part lies within a larger
    one. Without a seed given, runs of different seeds have the same part.

    Args:
        labels: (N,) classes, integers from 0.
        amount: How many: 0 all, below 1 a share (at least one example), from 1 a number.
        key: The configuration key that says so, for messages and for its own randomness.
        given_by: Another key that says how many, for messages; the order stays that of ``key``.
    """
    count = _count(amount, labels.size, given_by or key)
    if count == labels.size:
        return np.arange(labels.size, dtype=np.int64)
    order = randomness.generator(seed, "subset", key).permutation(labels.size)
    order = order[np.argsort(labels[order], kind="stable")]
    sizes = np.bincount(labels)
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    places = (np.arange(labels.size) - starts + 0.5) / np.repeat(sizes, sizes)
    return np.sort(order[np.argsort(places, kind="stable")[:count]]).astype(np.int64)


def _count(amount: float, available: int, key: str) -> int:
    if amount < 1:
        return max(1, round(amount * available)) if amount else available
    if amount != int(amount) or amount > available:
        raise ConfigurationError(
            f"{key} is {amount:g}; allowed: 0 for all, a share below 1, or a whole number up to "
            f"{available}: there are no more"
        )
    return int(amount)


def train_and_test(labels: Labels, share: float) -> tuple[Labels, Labels]:
    """Return the ascending positions for training and, a share of each class, for testing."""
    test = stratified_positions(labels, share, "test-share")
    return np.setdiff1d(np.arange(labels.size), test), test


def divide(labels: Labels, columns: Columns, reading: Reading, where: str) -> tuple[Labels, Labels]:
    """Return what ``train_and_test`` does, by ``test-sites`` if these are given."""
    if not reading.test_sites:
        return train_and_test(labels, reading.test_share)
    column, _, named = reading.test_sites.partition(":")
    given = f"{where}: test-sites is '{reading.test_sites}'"
    if column not in columns:
        problem = unknown_name("column", column, columns)
        raise DataError(f"{given}; write it as COLUMN:VALUE: {problem}")
    values = np.asarray(columns[column]).astype(str)
    sites = [site.strip() for site in named.split("+")]
    for site in sites:
        if site not in values:
            raise DataError(f"{given}: {unknown_name('value', site, np.unique(values).tolist())}")
    tested = np.isin(values, sites)
    if tested.all():
        raise DataError(f"{given}, which leaves no example to train on; allowed: fewer sites")
    return np.flatnonzero(~tested), np.flatnonzero(tested)


def train_positions(dataset: Dataset, amount: float, clients: int = 0) -> Labels:
    """Return the positions of the training examples that ``train-examples`` keeps, (n,) int64.

    Of a data set of several tasks, a number is split over the tasks by their numbers of clients,
    where it is known (not 0).
    """
    key = "train-examples"
    if not (dataset.tasks and clients and amount >= 1):
        return stratified_positions(dataset.train_labels, amount, key)
    count = _count(amount, dataset.train_labels.size, key)
    tasks = dataset.task_of_each(clients)
    parts, before = [], 0
    for task in dataset.tasks:
        own = tasks.count(task)
        after = before + own
        mine = np.flatnonzero(task.holds(dataset.train_labels))
        # Rounded so that the parts sum to the number.
        wanted = count * after // clients - count * before // clients
        before = after
        if wanted > mine.size:
            raise ConfigurationError(
                f"{key} is {amount:g}, of which {wanted} are for the {own} clients of "
                f"'{task.name}', which has {mine.size}; allowed: at most "
                f"{mine.size * clients // own}"
            )
        labels = dataset.train_labels[mine] - task.first_class
        parts.append(mine[stratified_positions(labels, float(wanted), key)] if wanted else mine[:0])
    return np.sort(np.concatenate(parts))


def with_test_examples(dataset: Dataset, amount: float) -> Dataset:
    """Return the data set with those of its test examples that ``test-examples`` keeps."""
    kept = stratified_positions(dataset.test_labels, amount, "test-examples")
    if kept.size == dataset.test_labels.size:
        return dataset
    targets = dataset.test_targets
    return dataclasses.replace(
        dataset,
        test_images=dataset.test_images[kept],
        test_labels=dataset.test_labels[kept],
        test_columns={name: values[kept] for name, values in dataset.test_columns.items()},
        test_targets=None if targets is None else targets[kept],
    )
