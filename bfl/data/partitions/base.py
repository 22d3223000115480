"""Base of partitions of the training data over the clients, and the partition into like parts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from bfl.errors import ConfigurationError, DataError
from bfl.registry import Component, Registry

Indices = npt.NDArray[np.int64]
Columns = Mapping[str, npt.NDArray[Any]]
"""Knowledge of each example besides its label: (N,) values, by a name."""


class Partition(Component):
    """Base of every partition: which client holds which training examples.

    A subclass implements ``assign`` and, where its settings can ask for too much, extends
    ``check``. Every partition here is complete: each example lies with exactly one client, or with
    at least one where a partition is not ``disjoint``. The base class sees to it.
    """

    disjoint: ClassVar[bool] = True
    """True if no example stands twice, with two clients or with one."""

    def has(self) -> frozenset[str]:
        """Return whether an example may stand twice."""
        return super().has() | (frozenset() if self.disjoint else {"repeated-examples"})

    def check(self, num_examples: int, num_classes: int, clients: int) -> None:
        """Check before anything starts that the data can be split as asked.

        Args:
            num_examples: The number of training examples N.
            num_classes: The number of classes C.
            clients: The number of clients K.

        Raises:
            ConfigurationError: They cannot; the message names the keys and what is allowed.
        """
        if clients < 1:
            raise ConfigurationError(f"clients is {clients}; allowed: at least 1")
        if num_examples < clients:
            raise ConfigurationError(
                f"partition '{self.name}': clients is {clients}, but there are only "
                f"{num_examples} training examples; allowed: clients from 1 to {num_examples}"
            )

    def split(
        self,
        labels: npt.ArrayLike,
        clients: int,
        generator: np.random.Generator,
        columns: Columns | None = None,
    ) -> list[Indices]:
        """Return the indices of every client's examples.

        The result depends on the labels, the columns, the number of clients, the settings and the
        generator alone. The order of a client's indices is random, also where the data are sorted
        by class.

        Args:
            labels: The training labels (N,), integers from 0.
            clients: The number of clients K.
            generator: The source of the randomness, keyed by the run's seed.
            columns: Arrays (N,) that are known of the examples, such as their sites, by name.

        Returns:
            K arrays, none of them empty, that hold each of 0..N−1: once, if it is ``disjoint``.

        Raises:
            ConfigurationError: The data cannot be split as asked.
            DataError: The labels are not labels.
        """
        classes = _checked_labels(labels)
        self.check(classes.size, np.unique(classes).size, clients)
        parts = self.assign_by(classes, columns or {}, clients, generator)
        _check_parts(self, parts, classes.size, clients)
        return [generator.permutation(part).astype(np.int64) for part in parts]

    def assign_by(
        self, labels: Indices, columns: Columns, clients: int, generator: np.random.Generator
    ) -> Sequence[Indices]:
        """Return what ``assign`` does; a partition that goes by columns overrides it."""
        return self.assign(labels, clients, generator)

    def assign_tests(self, columns: Columns, tests: Columns) -> list[Indices] | None:
        """Return the test examples (K) of the clients; None: they are as the classes say.

        Args:
            columns: The columns of the training examples.
            tests: Those of the test examples.
        """
        return None

    def names(self, columns: Columns) -> tuple[str, ...]:
        """Return the clients' names; none: they have their numbers."""
        return ()

    def check_gaps(self, gaps: Mapping[str, str]) -> None:
        """Refuse columns that it goes by and that lack values; see ``Dataset.gaps``.

        Raises:
            ConfigurationError: With the first row.
        """
        return

    def said(self, columns: Columns, tests: Columns) -> list[str]:
        """Return what is to be said of the columns of training and test examples; see ``names``."""
        return []

    @abstractmethod
    def assign(
        self, labels: Indices, clients: int, generator: np.random.Generator
    ) -> Sequence[Indices]:
        """Return the indices of every client's examples, in any order (see ``split``).

        Which examples of a class a client gets is to be random: the data may be sorted.
        """


def grouped_by_class(labels: Indices, generator: np.random.Generator) -> Indices:
    """Return all indices (N,), class after class and in random order within each class."""
    order = generator.permutation(labels.size)
    return order[np.argsort(labels[order], kind="stable")]


def _checked_labels(labels: npt.ArrayLike) -> Indices:
    array = np.asarray(labels)
    if array.ndim != 1 or array.dtype.kind not in "iu" or array.size == 0 or array.min() < 0:
        raise DataError(
            f"labels of the type {array.dtype} and the shape {array.shape} cannot be split; they "
            "are integers from 0, (N,)"
        )
    return array.astype(np.int64)


def _check_parts(
    partition: Partition, parts: Sequence[Indices], num_examples: int, clients: int
) -> None:
    sizes = [len(part) for part in parts]
    held = np.sort(np.concatenate(parts))
    if not partition.disjoint:
        held = np.unique(held)
    if len(sizes) != clients or 0 in sizes or not np.array_equal(held, np.arange(num_examples)):
        raise DataError(
            f"partition '{partition.name}' is unsound: {len(sizes)} parts for {clients} clients, "
            f"{sizes.count(0)} of them empty, {sum(sizes)} indices for {num_examples} examples"
        )


partitions: Registry[Partition] = Registry("partition", "bfl.data.partitions")


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
        cards = grouped_by_class(labels, generator)
        return [cards[seat::clients] for seat in generator.permutation(clients)]
