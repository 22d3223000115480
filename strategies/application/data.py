"""The data of a run: what each client trains and tests on, and what the server has of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bfl import randomness
from bfl.aggregation.server import UsesServer
from bfl.closing.base import held_back_count
from bfl.configuration import Configuration
from bfl.data.datasets import Dataset, dataset_warnings
from bfl.data.datasets.base import digest_of
from bfl.data.datasets.server_data import (
    HELD_BACK,
    ServerData,
    check_apart,
    load_server_data,
    without,
)
from bfl.data.datasets.subset import train_positions, with_test_examples
from bfl.data.partitions.base import describe, own_test_split
from bfl.errors import ConfigurationError
from bfl.experiments.results.run_folder import without_numbers
from bfl.experiments.run.network import check_models
from bfl.federation.wire import Positions
from strategies.federation import Federation


@dataclass(frozen=True, eq=False)
class RunData:
    """Division of a run's examples: which are whose.

    Attributes:
        whole: The data set, with all test examples.
        dataset: The same with those of its test examples that are used.
        own: The server's own images; None: it has none.
        used: The positions of the training images that clients share.
        train: Those of each client, by partition id; None for nodes with data of their own.
        test: The test examples of each client, likewise; None where none has its own.
        sizes: How many training examples each client has, its node's own included.
    """

    whole: Dataset
    dataset: Dataset
    own: ServerData | None
    used: Positions
    train: list[Positions | None]
    test: list[Positions | None] | None
    sizes: list[int]

    def digests(self) -> dict[str, str]:
        """Return a digest of the images and labels of each kind; nodes alone see their own.

        ``server`` is of the server's own images where what clients do without does not tell them.
        """
        found = {}
        if any(part is not None for part in self.train):
            found["train"] = self.whole.train_digest
        found["test"] = self.whole.test_digest
        if self.own and (self.own.unused.size or not self.own.held_back.size):
            labels = () if self.own.labels is None else (self.own.labels,)
            found["server"] = digest_of(self.own.images, *labels)
        return found

    def describe(self, configuration: Configuration) -> dict[str, Any]:
        """Return who holds what of the run's data set, for the run's folder."""
        labels, classes = self.dataset.train_labels, self.dataset.num_classes
        described = describe(labels, [part for part in self.train if part is not None], classes)
        if counts := described["class_counts"]:
            of_shared = iter(counts)  # nobody but a node counts the classes of its own data
            described["class_counts"] = [p if p is None else next(of_shared) for p in self.train]
        sizes = zip(self.train, self.sizes, strict=True)  # a node may say 1 for any number
        described["num_examples"] = [None if p is None and n == 1 else n for p, n in sizes]
        if names := configuration.partition.names(self.dataset.train_columns):
            described["names"] = list(names)
        # Whether the server has them or nobody does: runs whose clients have the same are pairs.
        if self.own and self.own.without_clients.size:
            described["server"] = describe(labels, [self.own.without_clients], classes)
        # Numbers of a client's examples and classes are its data, and no noise is on them.
        return without_numbers(described) if configuration.hides_measurements else described


def divide(configuration: Configuration, whole: Dataset, federation: Federation) -> RunData:
    """Return who has which examples, if they serve all who need some.

    Raises:
        ConfigurationError: The data cannot be split as configured, or somebody gets too few, or
            those of others, or such as a model does not take.
        DataError: The server's other data set cannot be had.
    """
    keys, clients = configuration.keys, federation.size
    own_examples = [federation.own_examples[client] for client in range(clients)]
    if whole.split_here and all(own_examples) and not (keys.server_data or keys.pretrain_examples):
        whole = whole.all_for_testing()  # as no client trains on it
    dataset = with_test_examples(whole, keys.test_examples)
    own = _server_data(configuration, dataset, own_examples)
    used, train = np.zeros(0, np.int64), list[Positions | None]([None] * clients)
    if not all(own_examples):
        used = train_positions(dataset, keys.train_examples, clients)
        used = without(used, own.without_clients) if own else used
        parts = _split(configuration, dataset, used, clients)
        train = [None if n else part for n, part in zip(own_examples, parts, strict=True)]
    _check_apart(configuration, dataset, own, used)
    test = own_tests(configuration, dataset, train)
    sizes = [n if part is None else len(part) for n, part in zip(own_examples, train, strict=True)]
    share = configuration.held_back_share
    held_back = sum(held_back_count(size, share) for size in sizes if size)
    for closing in configuration.closing:
        if problem := closing.held_back_problem(held_back):
            raise ConfigurationError(problem)
    check_models(configuration, dataset, clients)
    return RunData(whole, dataset, own, used, train, test, sizes)


def _server_data(
    configuration: Configuration, dataset: Dataset, own_examples: Sequence[int]
) -> ServerData | None:
    keys = configuration.keys
    if keys.server_data == HELD_BACK and any(own_examples):
        nodes = ", ".join(str(client) for client, number in enumerate(own_examples) if number)
        raise ConfigurationError(
            f"server-data is '{HELD_BACK}', and the SuperNodes of partitions {nodes} have data of "
            "their own, from which the server can hold nothing back; allowed: another data set, or "
            "nothing"
        )
    own = load_server_data(
        keys.server_data,
        dataset,
        data_dir=keys.data_dir,
        reading=keys.reading,
        examples=keys.server_examples,
        unused=keys.unused_examples,
        train_examples=keys.train_examples,
        clients=len(own_examples),
        seed=keys.seed,
        labelled=keys.server_labels,
    )
    for part in configuration.components:
        if isinstance(part, UsesServer):
            part.check(own)
    return own


def _check_apart(
    configuration: Configuration, dataset: Dataset, own: ServerData | None, used: Positions
) -> None:
    """Refuse images of another data set that are the clients' or the test's as well."""
    word = configuration.keys.server_data
    if own is None or word == HELD_BACK:
        return
    if configuration.server_network_decides:
        why = "the run would be evaluated on what it has learnt from, or has been picked by"
        what = f"test images of dataset {dataset.name}: {why}"
        check_apart(own, dataset.test_images, word, what)
    if any(isinstance(c, UsesServer) and c.needs_server for c in configuration.components):
        what = "among those that the clients train on"
        check_apart(own, dataset.train_images[used], word, what)


def _split(
    configuration: Configuration, dataset: Dataset, used: Positions, clients: int
) -> list[Positions]:
    """Return each client's examples; of a data set of tasks those of its task are split."""
    partition, seed = configuration.partition, configuration.keys.seed
    labels = dataset.train_labels[used]
    if not dataset.tasks:
        partition.check(len(used), dataset.num_classes, clients)
        columns = {name: values[used] for name, values in dataset.train_columns.items()}
        generator = randomness.generator(seed, "partition")
        return [used[part] for part in partition.split(labels, clients, generator, columns)]
    if not configuration.shared.partial:
        raise ConfigurationError(
            f"dataset '{configuration.keys.dataset}' has tasks with classes of their own, and "
            f"shared is '{configuration.shared.name}', heads and all; allowed: "
            'shared="convolutions", or another choice that leaves each client its head'
        )
    assigned = dataset.task_of_each(clients)
    parts: list[Positions] = []
    for number, task in enumerate(dict.fromkeys(assigned)):
        positions, having = used[task.holds(labels)], assigned.count(task)
        partition.check(positions.size, task.num_classes, having)
        counted = dataset.train_labels[positions] - task.first_class
        generator = randomness.generator(seed, "partition", number)
        parts += [positions[part] for part in partition.split(counted, having, generator)]
    return parts


def own_tests(
    configuration: Configuration, dataset: Dataset, train: Sequence[Positions | None]
) -> list[Positions | None] | None:
    """Return the test examples of each client, by its site or to evaluate on; None for neither."""
    by_clients = configuration.keys.evaluated_by == "clients"
    if not (by_clients or configuration.partition.names(dataset.train_columns)):
        return None
    known = [part for part in train if part is not None]
    if not known:
        return [None] * len(train)
    assigned = configuration.partition.assign_tests(dataset.train_columns, dataset.test_columns)
    if assigned is not None:
        parts = [a for a, part in zip(assigned, train, strict=True) if part is not None]
    else:
        generator = randomness.generator(configuration.keys.seed, "own-test")
        parts = own_test_split(dataset.train_labels, known, dataset.test_labels, generator)
    split = iter(parts)
    found = [None if part is None else next(split) for part in train]
    empty = [str(k) for k, part in enumerate(found) if part is not None and not part.size]
    own_models = configuration.personalization.active or configuration.shared.partial
    if empty and by_clients and own_models:
        raise ConfigurationError(
            f"evaluated-by is 'clients', and the clients of partitions {', '.join(empty)} have no "
            "test examples to evaluate models of their own with; allowed: more of them "
            f"(test-examples is {configuration.keys.test_examples:g}), a more even partition, or "
            'evaluated-by="server"'
        )
    return found


def warnings_of_data(configuration: Configuration, dataset: Dataset) -> list[str]:
    """Return warnings of a run's data, sites and evaluation, which its report has as well."""
    partition, personalization = configuration.partition, configuration.personalization
    site = getattr(partition, "site_column", "")
    warnings = dataset_warnings(dataset, site)
    if personalization.active and configuration.keys.evaluated_by == "server":
        what = "evaluated" if personalization.trains_meme else "evaluated, and is not trained"
        warnings.append(
            f"personalization '{personalization.name}': personal models are not evaluated, and the "
            f'global model is {what}; allowed: evaluated-by="clients"'
        )
    if dataset.encoding and site in [column.name for column in dataset.encoding.columns]:
        left_out = ",".join([*configuration.keys.reading.left_out, site])
        warnings.append(
            f"partition '{partition.name}:{site}': the column is an input as well; "
            f'columns-left-out="{left_out}" drops it'
        )
    return warnings
