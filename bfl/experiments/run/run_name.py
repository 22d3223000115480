"""The name of a run that has been given none."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from bfl.configuration import Configuration


def made_up_name(configuration: Configuration) -> str:
    """Return a readable name that no run in ``output-dir`` has: the time, then what was chosen."""
    keys = configuration.keys
    parts = (
        datetime.now().strftime("%Y%m%d-%H%M%S"),
        keys.dataset.split(":")[0],
        configuration.inference.name,
        configuration.pooling.name,
        configuration.weighting.name,
        configuration.partition.name,
        f"seed{keys.seed}",
    )
    name, number = "-".join(parts), 1
    free = name
    while (Path(keys.output_dir) / free).exists():
        number += 1
        free = f"{name}-{number}"
    return free
