"""Base of partitions of the data over the clients; like parts, and parts by a column."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from bfl.errors import ConfigurationError, DataError, unknown_name
from bfl.registry import Component, Registry
from bfl.texts import few

Indices = npt.NDArray[np.int64]
Columns = Mapping[str, npt.NDArray[Any]]
"""Knowledge of each example besides its label: (N,) values, by a name."""


class Partition(Component):
    """Base of every partition: which client holds which training examples.

    A subclass implements ``assign`` and, where its settings can ask for too much, extends
    ``check``. ``split`` sees to it that each example lies with a client, and with one alone unless
    a partition is not ``disjoint``.
    """

    disjoint: ClassVar[bool] = True
    """True if no example stands twice, with two clients or with one."""

    @abstractmethod
    def assign(
        self, labels: Indices, clients: int, generator: np.random.Generator
    ) -> Sequence[Indices]:
        """Return the indices of every client's examples in any order; whose they are is random."""

    def assign_by(
        self, labels: Indices, columns: Columns, clients: int, generator: np.random.Generator
    ) -> Sequence[Indices]:
        """Return what ``assign`` does; a partition that goes by columns overrides it."""
        return self.assign(labels, clients, generator)

    def assign_tests(self, columns: Columns, tests: Columns) -> list[Indices] | None:
        """Return the clients' test examples by both splits' columns; None: by their classes."""
        return None

    def names(self, columns: Columns) -> tuple[str, ...]:
        """Return the clients' names; none: they have their numbers."""
        return ()

    def has(self) -> frozenset[str]:
        """Return whether an example may stand twice."""
        return super().has() | (frozenset() if self.disjoint else {"repeated-examples"})

    def check(self, num_examples: int, num_classes: int, clients: int) -> None:
        """Raise a ConfigurationError, before anything starts, if the data cannot be split."""
        if not 1 <= clients <= num_examples:
            raise ConfigurationError(
                f"partition '{self.name}': clients is {clients}, and there are only {num_examples} "
                f"training examples; allowed: clients from 1 to {num_examples}"
            )

    def split(
        self,
        labels: Indices,
        clients: int,
        generator: np.random.Generator,
        columns: Columns | None = None,
    ) -> list[Indices]:
        """Return the indices of every client's examples, K arrays of which none is empty.

        The order of a client's indices is random, also where the data are sorted by class. Each of
        0..N−1 is there: once, if the partition is ``disjoint``.

        Args:
            labels: The training labels (N,), integers from 0.
            generator: The source of the randomness, keyed by the run's seed.
        """
        self.check(labels.size, np.unique(labels).size, clients)
        parts = self.assign_by(labels, columns or {}, clients, generator)
        sizes = [len(part) for part in parts]
        held = np.sort(np.concatenate(parts))
        held = held if self.disjoint else np.unique(held)
        if len(sizes) != clients or 0 in sizes or not np.array_equal(held, np.arange(labels.size)):
            raise DataError(
                f"partition '{self.name}' is unsound: {len(sizes)} parts for {clients} clients, "
                f"{sizes.count(0)} of them empty, {sum(sizes)} indices for {labels.size} examples"
            )
        return [generator.permutation(part).astype(np.int64) for part in parts]


partitions: Registry[Partition] = Registry("partition", "bfl.data.partitions")


def group_by_class(labels: Indices, generator: np.random.Generator) -> Indices:
    """Return all indices (N,), class after class and in random order within each class."""
    order = generator.permutation(labels.size)
    return order[np.argsort(labels[order], kind="stable")]


@partitions.register("iid", aliases=("uniform",))
class Iid(Partition):
    """Every client gets nearly the same number of examples of each class.

    The examples are dealt out like cards, class after class and in random order within a class:
    the numbers of examples of two clients differ by at most one, in each class and in total.

    Source: "we assign each client a uniform distribution over the 10 classes", Fischer et al.
    (2024), section 3.1.
    """

    def assign(
        self, labels: Indices, clients: int, generator: np.random.Generator
    ) -> list[Indices]:
        """Return the dealt indices; chance decides who gets the examples that are left over."""
        cards = group_by_class(labels, generator)
        return [cards[seat::clients] for seat in generator.permutation(clients)]


@partitions.register("column")
class Column(Partition):
    """A natural partition: each value of a column is a client, ``partition="column:site"``.

    Columns are those of a table, or the folders above the classes (``site``). Clients are numbered
    in the order of the values. A client's own test examples are those of its value, where the test
    data have the column.
    """

    behind_colon: ClassVar[str] = "site-column"

    site_column: str = ""
    """the column whose values are the clients"""

    def assign(
        self, labels: Indices, clients: int, generator: np.random.Generator
    ) -> Sequence[Indices]:
        """Refuse data without columns."""
        return self.assign_by(labels, {}, clients, generator)

    def assign_by(
        self, labels: Indices, columns: Columns, clients: int, generator: np.random.Generator
    ) -> Sequence[Indices]:
        """Return the positions of each value, in the order of the values."""
        values = self._values(columns)
        names = np.unique(values)
        if len(names) != clients:
            raise ConfigurationError(
                f"partition 'column:{self.site_column}' with clients = {clients}: the column has "
                f"{len(names)} values, {few(list(map(str, names)))}; allowed: clients={len(names)}"
            )
        return [np.flatnonzero(values == name) for name in names]

    def names(self, columns: Columns) -> tuple[str, ...]:
        """Return the values in the order of the clients."""
        return tuple(map(str, np.unique(self._values(columns))))

    def assign_tests(self, columns: Columns, tests: Columns) -> list[Indices] | None:
        """Return the test examples of each value; some may be empty."""
        if self.site_column not in tests:
            return None
        names, values = np.unique(self._values(columns)), self._values(tests)
        return [np.flatnonzero(values == name) for name in names]

    def _values(self, columns: Columns) -> npt.NDArray[Any]:
        problem = "not all training data have it; allowed: a table, or a folder SITE/CLASS/IMAGE"
        if self.site_column in columns:
            values = np.asarray(columns[self.site_column])
            missing = np.isnan(values) if values.dtype.kind == "f" else values == ""
            if not missing.any():
                return values
            problem = f"{missing.sum()} of {values.size} examples have no value there"
        elif columns:
            problem = unknown_name("column", self.site_column, columns)
        raise ConfigurationError(f"partition 'column:{self.site_column}': {problem}")


def own_test_split(
    train_labels: Indices,
    parts: Sequence[Indices],
    test_labels: Indices,
    generator: np.random.Generator,
) -> list[Indices]:
    """Return the test examples of every client, with the proportions of its training examples.

    The test examples of a class are dealt out in proportion to how many of its training examples
    each client has, rounded by largest remainders with chance between equal ones. So no example
    lies with two clients, and each lies with one unless no client trains on its class. The order of
    a client's positions is random, and it may have none.

    Source: HBFL (2023), section 5, evaluates personal models on the clients' own test data; the
    code of federated mutual learning (Shen et al. 2020) draws them with the proportions of the
    training data, some of them for several clients.
    """
    classes = int(max(train_labels.max(), test_labels.max())) + 1
    counts = np.stack([np.bincount(train_labels[part], minlength=classes) for part in parts])
    held: list[list[Indices]] = [[] for _ in parts]
    for label in range(classes):
        examples = generator.permutation(np.flatnonzero(test_labels == label))
        own = counts[:, label]
        if not own.any():
            continue
        # In whole numbers, so that equal remainders are equal.
        shares, remainders = np.divmod(examples.size * own, own.sum())
        order = np.lexsort((generator.permutation(len(parts)), -remainders))
        shares[order[: examples.size - shares.sum()]] += 1
        for client, part in enumerate(np.split(examples, np.cumsum(shares)[:-1])):
            held[client].append(part)
    return [generator.permutation(np.concatenate(part)).astype(np.int64) for part in held]


def describe(labels: Indices, parts: Sequence[Indices], num_classes: int) -> dict[str, Any]:
    """Return the record of a partition of C classes, ready for JSON.

    Returns:
        ``num_examples`` of each client (K,), ``class_counts`` of each client and class (K, C);
        ``client_sha256``, the digest of each client's indices, as little-endian int64 in their
        order; ``sha256``, that of the clients' digests, joined.
    """
    digests = [hashlib.sha256(np.asarray(p).astype("<i8").tobytes()).hexdigest() for p in parts]
    return {
        "num_examples": [len(part) for part in parts],
        "class_counts": [np.bincount(labels[p], minlength=num_classes).tolist() for p in parts],
        "client_sha256": digests,
        "sha256": hashlib.sha256("".join(digests).encode()).hexdigest(),
    }
