"""Digests of a run's data, as far as they lie where the server does."""

from __future__ import annotations

from bfl.data.datasets import Dataset
from bfl.data.datasets.digest import digest_of
from bfl.data.datasets.server_data import ServerData
from strategies.federation import Federation


def data_digests(
    dataset: Dataset, federation: Federation, own: ServerData | None
) -> dict[str, str]:
    """Return a digest of the images and labels of each kind that the run uses.

    What nodes hold of their own they alone can see.

    Args:
        dataset: The run's data set, with all its test examples.
        federation: The nodes.
        own: The server's own images.

    Returns:
        ``train``, unless all nodes have data of their own; ``test``; and ``server``, the server's
        own images where what clients do without does not tell them: those of another data set, and
        those that are held back besides images that nobody has.
    """
    found = {}
    if not all(federation.own_examples.values()):
        found["train"] = dataset.train_digest
    found["test"] = dataset.test_digest
    if own and (own.unused.size or not own.held_back.size):
        labels = () if own.labels is None else (own.labels,)
        found["server"] = digest_of(own.images, *labels)
    return found
