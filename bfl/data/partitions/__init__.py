"""Partitions of the training data over the clients, picked by the key ``partition``.

- ``base``: what a partition is, and the registry.
- ``iid``, ``shards``, ``dirichlet``, ``step``: the partitions.
- ``own_test_split``: the test data split over the clients as their training data are, and the table
  of clients and classes that a run keeps.
"""

from bfl.data.partitions.base import Partition, partitions
from bfl.data.partitions.own_test_split import describe, own_test_split

__all__ = ["Partition", "describe", "own_test_split", "partitions"]
