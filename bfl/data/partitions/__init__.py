"""How the training data are spread over the clients, picked by the key ``partition``.

- ``base``: what a partition is, and the registry.
- ``iid``, ``shards``, ``dirichlet``: the partitions.
- ``manifest``: the table of clients and classes that a run keeps.
"""

from bfl.data.partitions.base import Partition, partitions
from bfl.data.partitions.manifest import PartitionManifest, describe

__all__ = ["Partition", "PartitionManifest", "describe", "partitions"]
