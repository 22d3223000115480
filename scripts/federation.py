"""A real federation, whole, on this machine: certificates, keys, a server, clients, and one run.

    python scripts/federation.py --clients 2 --run-config 'rounds=1 local-epochs=1'

Each client has its own key and a folder with the images that a simulation with the same
configuration gives it, so that both end in the same posterior. All is stopped at the end, also by
Ctrl-C. On several machines, each does its part: docs/deployment.md.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from bfl import randomness
from bfl.commands.federation import start_run
from bfl.commands.terminal import exits_with_status
from bfl.configuration import resolve
from bfl.configuration.sources import read_run_config
from bfl.data.datasets import cached_dataset
from bfl.data.datasets.subset import train_positions
from bfl.deployment import setup
from bfl.deployment.private_files import FederationFolder
from bfl.deployment.processes import Processes, flower_environment
from bfl.deployment.settings import ServerSettings
from bfl.engine.processes import cpus_of_this_process


def free_ports(count: int) -> list[int]:
    """Return loopback ports that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def make(folder: Path, clients: int) -> FederationFolder:
    """Return a federation on free ports of this machine."""
    port, superlink = free_ports(2)
    settings = ServerSettings(
        hosts=("localhost",), bind="127.0.0.1", port=port, superlink_port=superlink
    )
    return setup.init(folder, settings, str(clients), datetime.now(UTC))


def give_data(made: FederationFolder, clients: int, run_config: Sequence[str]) -> None:
    """Give each client the images that a simulation gives it, and its share of the CPUs."""
    configuration = resolve({**read_run_config(run_config), "clients": clients})
    keys = configuration.keys
    dataset = cached_dataset(keys.dataset, keys.data_dir, keys.reading)
    used = train_positions(dataset, keys.train_examples, clients)
    parts = configuration.partition.split(
        dataset.train_labels[used],
        clients,
        randomness.generator(keys.seed, "partition"),
        {name: values[used] for name, values in dataset.train_columns.items()},
    )
    cpus = max(1, cpus_of_this_process() // clients)
    for number, part in enumerate(parts):
        place = made.client(f"client-{number}")
        arrays: dict[str, Any] = {"x_test": dataset.test_images, "y_test": dataset.test_labels}
        arrays["x_train"] = dataset.train_images[used[part]]
        arrays["y_train"] = dataset.train_labels[used[part]]
        np.savez(place / "data.npz", **arrays)
        (place / "node.toml").write_text(f'dataset = "npz:data.npz"\ncpus = {cpus}\n')


@exits_with_status
def main(arguments: list[str] | None) -> None:
    """Make the federation and its run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--run-config", action="append", default=[])
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bfl-federation-") as scratch:
        made = make(Path(scratch) / "federation", given.clients)
        give_data(made, given.clients, given.run_config)
        with closing(Processes(flower_environment(Path(scratch)), Path(scratch))) as processes:
            processes.start("the server", made.server / "start.sh")
            for number in range(given.clients):
                place = made.client(f"client-{number}")
                processes.start(place.name, place / "start.sh")
            start_run(
                argparse.Namespace(**vars(given), folder=made.server, state=None, baselines="")
            )


if __name__ == "__main__":
    sys.exit(main())
