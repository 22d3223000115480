"""What every registered partition keeps to; a new one is tested by being there."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from bfl.data.partitions.base import Partition, partitions
from bfl.errors import ConfigurationError, DataError
from bfl.randomness import generator

# Those by a column split nothing without one.
NAMES = [partition.name for partition in partitions.classes() if not partition.behind_colon]
PAPER_LABELS = np.repeat(np.arange(10), 60)


def sound(name: str, parts: list[np.ndarray], num_examples: int, clients: int) -> None:
    """Each example once; with a partition that says so, each at least once."""
    assert len(parts) == clients
    assert all(part.dtype == np.int64 and part.ndim == 1 and part.size for part in parts)
    held = np.concatenate(parts)
    assert np.array_equal(np.unique(held), np.arange(num_examples))
    assert not partitions.get(name).disjoint or held.size == num_examples


@st.composite
def labelled(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    clients = draw(st.integers(1, 8))
    sizes = draw(st.lists(st.integers(clients, 40), min_size=2, max_size=5))
    # Labels with gaps: not every class of a data set need have an example.
    numbers = draw(st.permutations(range(7)))[: len(sizes)]
    labels = np.repeat(numbers, sizes)
    order = draw(st.sampled_from(["sorted", "unsorted", "reversed"]))
    arrangements = {
        "sorted": np.sort(labels),
        "reversed": np.sort(labels)[::-1],
        "unsorted": np.random.Generator(np.random.Philox(len(labels))).permutation(labels),
    }
    return arrangements[order], clients


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(case=labelled(), seed=st.integers(0, 2**32))
def test_parts_are_disjoint_complete_and_not_empty(name: str, case, seed: int) -> None:
    labels, clients = case
    try:
        parts = partitions.create(name).split(labels, clients, generator(seed))
    except ConfigurationError:
        reject()
    sound(name, parts, labels.size, clients)


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_decides(name: str) -> None:
    labels, partition = PAPER_LABELS, partitions.create(name)
    parts = []
    for number, seed in enumerate((1, 1, 2)):
        np.random.seed(number)  # noqa: NPY002 - which is not heard
        parts.append(partition.split(labels, 10, generator(seed, "partition")))
    first, again, other = parts
    sound(name, first, labels.size, 10)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(np.sort(a), np.sort(b)) for a, b in zip(first, other))  # noqa: B905


@pytest.mark.parametrize("name", NAMES)
def test_which_examples_and_in_which_order_is_random(name: str) -> None:
    """Sorted data must give clients neither runs of neighbours nor runs of one class."""
    labels = np.repeat(np.arange(2), 500)
    for part in partitions.create(name).split(labels, 2, generator(3)):
        classes = labels[part]
        if np.unique(classes).size > 1:
            assert np.count_nonzero(np.diff(classes)) > 2
        assert np.mean(np.abs(np.diff(part)) == 1) < 0.05
        for members in (np.sort(part[classes == c]) for c in range(2)):
            # Neighbours only, were the class cut in the order of the data.
            if 20 <= members.size <= 400:
                assert np.mean(np.diff(members) == 1) < 0.95


@pytest.mark.parametrize("name", NAMES)
def test_what_no_partition_splits_is_refused(name: str) -> None:
    for clients in (0, 12):
        with pytest.raises(ConfigurationError, match=f"clients is {clients},.* from 1 to 11"):
            partitions.create(name).check(11, 10, clients)


REFUSED = [
    ("shards", {"shards-per-client": 11}, [50] * 10, 10, "= 11: .*from 1 to 10"),
    ("shards", {}, [50] * 10, 4, "clients = 4 and shards-per-client = 2"),
    ("shards", {"shards-per-client": 5}, [3] * 10, 7, "clients = 7 and shards-per-client = 5"),
    ("shards", {}, [100, 1], 3, "smallest class has 1"),
    ("dirichlet", {"alpha": 0.001}, [50, 50], 10, "alpha = 0.001.* = 10 .*size = 1.*raise alpha"),
    ("dirichlet", {"min-partition-size": 20}, [49, 50], 10, "size = 20 need 200 .*from 1 to 9"),
    ("dirichlet", {"guaranteed-examples": 50}, [400] * 10, 10, "= 50 need 5010 .* there are 4000"),
    ("dirichlet", {"guaranteed-examples": 50}, [5000, 300], 10, "class 1 has only 300 .* 0 to 30"),
    ("step", {}, [50] * 10, 4, "each of the 10 classes .* from 3 to 10"),
    ("step", {"major-classes": 4}, [50] * 3, 4, "is 4, and .* 3 .* 1 to 3"),
    ("step", {"minor-examples": 6.0}, [50] * 10, 10, r"= 6: class \d has only 50 .*lower minor"),
    # One image for each client, and so no step.
    ("step", {"major-classes": 1}, [10] * 5, 10, r"class \d has only 10 examples"),
    ("step-overlapping", {"minor-examples": 50.0}, [400] * 10, 10, "class 0 has only 400 examples"),
    ("step-overlapping", {}, [5] * 3, 10, "20 shards of 15"),
]


@pytest.mark.parametrize(("name", "given", "sizes", "clients", "said"), REFUSED)
def test_what_cannot_be_split_is_refused(
    name: str, given: dict[str, float], sizes: list[int], clients: int, said: str
) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    with pytest.raises(ConfigurationError, match=f"partition '{name}'.*{said}"):
        partitions.create(name, given).split(labels, clients, generator(0))


@pytest.mark.parametrize(
    ("once", "flaw"),
    [
        *((True, flaw) for flaw in ([[0, 1], [1, 2]], [[0, 1, 2], []], [[0, 1, 2]])),
        (False, [[0, 1], [1]]),
    ],
)
def test_an_unsound_partition_is_caught(once: bool, flaw: list[list[int]]) -> None:
    """Also where examples may stand twice: none may be missing."""

    class Flawed(Partition):
        """A partition that breaks its promise."""

        disjoint = once

        def assign(self, labels, clients, generator):
            return [np.array(part, np.int64) for part in flaw]

    with pytest.raises(DataError, match="unsound"):
        Flawed().split(np.zeros(3, int), 2, generator(0))
