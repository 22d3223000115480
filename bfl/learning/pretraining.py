"""Pre-training of the global model: on which images, and until when."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bfl.data.datasets import Dataset
from bfl.data.datasets.subset import stratified_positions
from bfl.errors import ConfigurationError

IntArray = npt.NDArray[np.int64]


def stop_early(accuracies: list[float], patience: int) -> bool:
    """Return whether the best accuracy lies ``patience`` epochs or more behind; ties count once."""
    return len(accuracies) - 1 - int(np.argmax(accuracies)) >= patience


def split_off(
    dataset: Dataset, share: float, validation: float, used: IntArray
) -> tuple[IntArray, IntArray]:
    """Return the positions of the pre-training images and of the validation images among them.

    Args:
        share: ``pretrain-examples``: below 1 a share of the clients' images, from 1 a number.
        validation: The share of these that is held out.
        used: The positions of the images that clients share.
    """
    chosen = used[stratified_positions(dataset.train_labels[used], share, "pretrain-examples")]
    held_out = stratified_positions(dataset.train_labels[chosen], validation, "pretrain-validation")
    if held_out.size == chosen.size:
        raise ConfigurationError(
            f"pretrain-examples is {share:g}: of {chosen.size} image none is left to train on"
        )
    return np.delete(chosen, held_out), chosen[held_out]
