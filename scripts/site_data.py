"""Writes an archive for each client: the images that a simulation with this configuration gives it.

Usage: site_data.py CLIENTS FOLDER [PAIRS|FILE]…; the folder gets 0.npz, 1.npz, … with the client's
training images, and the data set's test images. Clients that hold them end in the simulation's
posterior.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from bfl import randomness
from bfl.configuration import resolve
from bfl.configuration.sources import read_run_config
from bfl.data.datasets import cached_dataset
from bfl.data.datasets.subset import train_positions


def main(clients: str, folder: str, *run_config: str) -> None:
    """Write the archives."""
    configuration = resolve({**read_run_config(run_config), "clients": int(clients)})
    keys = configuration.keys
    dataset = cached_dataset(keys.dataset, keys.data_dir, keys.reading)
    used = train_positions(dataset, keys.train_examples, keys.clients)
    parts = configuration.partition.split(
        dataset.train_labels[used],
        keys.clients,
        randomness.generator(keys.seed, "partition"),
        {name: values[used] for name, values in dataset.train_columns.items()},
    )
    for partition_id, part in enumerate(parts):
        np.savez(
            Path(folder) / f"{partition_id}.npz",
            x_train=dataset.train_images[used[part]],
            y_train=dataset.train_labels[used[part]],
            x_test=dataset.test_images,
            y_test=dataset.test_labels,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
