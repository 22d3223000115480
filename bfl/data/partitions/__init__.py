"""Partitions of the training data over the clients, picked by the key ``partition``."""

from bfl.data.partitions.base import Partition, describe, own_test_split, partitions

__all__ = ["Partition", "describe", "own_test_split", "partitions"]
