"""Partitions of the training data over the clients, picked by the key ``partition``."""

from bfl.data.partitions.base import Partition, partitions
from bfl.data.partitions.own_test_split import describe, own_test_split

__all__ = ["Partition", "describe", "own_test_split", "partitions"]
