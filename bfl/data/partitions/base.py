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
    ``check``. ``split`` sees to it that each example lies with a client, and with one alone unless
    a partition is not ``disjoint``.
    """

    disjoint: ClassVar[bool] = True
    """True if no example stands twice, with two clients or with one."""

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
        labels: npt.ArrayLike,
        clients: int,
        generator: np.random.Generator,
        columns: Columns | None = None,
    ) -> list[Indices]:
        """Return the indices of every client's examples, K arrays of which none is empty.

        The order of a client's indices is random, also where the data are sorted by class. Each of
        0..N−1 is there: once, if the partition is ``disjoint``.

        Args:
            labels: The training labels (N,), integers from 0.
            clients: The number of clients K.
            generator: The source of the randomness, keyed by the run's seed.
            columns: Arrays (N,) that are known of the examples, such as their sites, by name.

        Raises:
            ConfigurationError: The data cannot be split as asked.
            DataError: The labels are not labels.
        """
        classes = np.asarray(labels)
        whole = classes.ndim == 1 and classes.dtype.kind in "iu" and classes.size
        if not whole or classes.min() < 0:
            raise DataError(
                f"labels of the type {classes.dtype} and the shape {classes.shape} cannot be "
                "split; they are integers from 0, (N,)"
            )
        classes = classes.astype(np.int64)
        self.check(classes.size, np.unique(classes).size, clients)
        parts = self.assign_by(classes, columns or {}, clients, generator)
        sizes = [len(part) for part in parts]
        held = np.sort(np.concatenate(parts))
        held = held if self.disjoint else np.unique(held)
        if len(sizes) != clients or 0 in sizes or not np.array_equal(held, np.arange(classes.size)):
            raise DataError(
                f"partition '{self.name}' is unsound: {len(sizes)} parts for {clients} clients, "
                f"{sizes.count(0)} of them empty, {sum(sizes)} indices for {classes.size} examples"
            )
        return [generator.permutation(part).astype(np.int64) for part in parts]

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

    def said(self, columns: Columns, tests: Columns) -> list[str]:
        """Return what is to be said of the columns of training and test examples; see ``names``."""
        return []

    @abstractmethod
    def assign(
        self, labels: Indices, clients: int, generator: np.random.Generator
    ) -> Sequence[Indices]:
        """Return the indices of every client's examples in any order; whose they are is random."""


def grouped_by_class(labels: Indices, generator: np.random.Generator) -> Indices:
    """Return all indices (N,), class after class and in random order within each class."""
    order = generator.permutation(labels.size)
    return order[np.argsort(labels[order], kind="stable")]


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
