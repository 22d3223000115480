"""The images that the server has of its own: clients do not train on them.

Pre-training takes others: ``split_off`` of ``bfl.learning.pretraining`` picks them from
the run's training images, without those held back, and clients hold them as well, as in Fischer et
al. (2024), section 3.6.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from bfl.data.datasets import Dataset, Reading, absolute_dataset, absolute_other, cached_dataset
from bfl.data.datasets.base import Labels, Targets
from bfl.data.datasets.reading import AS_STORED, match_shape
from bfl.data.datasets.subset import stratified_positions, train_positions
from bfl.data.images import Images
from bfl.errors import ConfigurationError

HELD_BACK = "held-back"
"""The value of ``server-data`` for images that are held back from the clients."""


@dataclass(frozen=True, eq=False)
class ServerData:
    """The server's own images [N, H, W, C].

    Attributes:
        labels: Classes, int64 [N], or numbers; None if the server does not have them.
        held_back: Ascending positions of the images among the run's training images; none where
            they are another data set's.
        unused: Ascending positions there of the images that nobody has.
    """

    images: Images
    labels: Labels | Targets | None
    held_back: Labels
    unused: Labels = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def without_clients(self) -> Labels:
        """The positions that the clients do without, ascending."""
        return np.union1d(self.held_back, self.unused)


def load_server_data(
    server_data: str,
    dataset: Dataset,
    *,
    data_dir: str,
    reading: Reading = AS_STORED,
    examples: float,
    train_examples: float,
    clients: int,
    seed: int,
    labelled: bool = True,
    unused: float = 0.0,
) -> ServerData | None:
    """Return the server's own images; None if it has none.

    They have the mixture of classes of what they are taken from. Which they are depends on the seed
    and not on the partition or the nodes; on the number of clients only where the images that are
    used do, see ``train_positions``.

    Args:
        examples: The key ``server-examples``, of the training images used, or of the other set's.
        labelled: The key ``server-labels``.
        unused: The key ``unused-examples``: as many of the training images used nobody has. With
            images held back, together they are those that as many would be alone.
    """
    if not server_data:
        if unused:
            raise ConfigurationError(
                f"unused-examples is {unused:g} and server-data is ''; allowed: 0, or images of "
                f"the server's, '{HELD_BACK}' or another data set"
            )
        return None
    candidates = train_positions(dataset, train_examples, clients)

    def hold_back(count: float, key: str) -> Labels:
        labels = dataset.train_labels[candidates]
        chosen = stratified_positions(labels, count, "server-examples", seed, given_by=key)
        if chosen.size == candidates.size:
            raise ConfigurationError(
                f"{key} is {count:g}: all {candidates.size} training images would be held back "
                "from the clients; allowed: fewer"
            )
        return candidates[chosen]

    # A smaller part lies within a larger one, so that the clients' images are the same for however
    # many of those set aside the server has.
    if server_data == HELD_BACK:
        source, own = dataset, hold_back(examples, "server-examples")
        held_back = own
    else:
        source = cached_dataset(server_data, data_dir, replace(reading, test_sites=""))
        if labelled:
            _check_goes_with(source, dataset, server_data)
        own = stratified_positions(source.train_labels, examples, "server-examples", seed)
        held_back = own[:0]
    of_nobody = own[:0]
    if unused:
        key = "unused-examples"
        count = hold_back(unused, key).size + held_back.size
        beside = f"{key} besides server-examples" if held_back.size else key
        of_nobody = without(hold_back(float(count), beside), held_back)
    answers = source.train_labels if source.train_targets is None else source.train_targets
    images = match_shape(dataset, source.train_images[own], f"server-data '{server_data}'")
    return ServerData(images, answers[own] if labelled else None, held_back, of_nobody)


def _check_goes_with(source: Dataset, dataset: Dataset, word: str) -> None:
    here = source.numbered_here or dataset.numbered_here
    if here and source.class_names != dataset.class_names:
        raise ConfigurationError(
            f"server-data '{word}': {here}; dataset {dataset.name} has other classes"
        )
    highest = int(source.train_labels.max())
    if highest >= dataset.num_classes:
        raise ConfigurationError(
            f"server-data '{word}' has the label {highest}, and dataset {dataset.name} has "
            f"{dataset.num_classes} classes; allowed: labels from 0, or server-labels=false"
        )


def without(positions: Labels, others: Labels) -> Labels:
    """Return the positions that are none of some others, in their order."""
    return positions[~np.isin(positions, others)]


def check_apart(data: ServerData, others: Images, word: str, what: str) -> None:
    """Raise if some of the server's images are among others, bit for bit; ``what`` says whose."""
    theirs = {image.tobytes() for image in others}
    if both := sum(image.tobytes() in theirs for image in data.images):
        raise ConfigurationError(
            f"server-data is '{word}', and {both} of its {len(data.images)} images are {what}; "
            f"allowed: '{HELD_BACK}', or a data set without them"
        )


def absolute_server_data(server_data: str, dataset: str, data_dir: str) -> str:
    """Return the key ``server-data`` such that the current folder does not matter."""
    if server_data in ("", HELD_BACK):
        return server_data
    beside = f"server-data is '{server_data}'; allowed: '', '{HELD_BACK}' or a data set"
    absolute = absolute_other(server_data, data_dir, beside)
    if absolute == absolute_dataset(dataset, data_dir)[0]:
        raise ConfigurationError(
            f"server-data is '{server_data}', the data set that the clients train on; allowed: "
            f"'{HELD_BACK}', or another data set"
        )
    return absolute
