"""Results of one data set that were made with other images or labels are not put together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bfl.experiments.studies.run_result import RunResult

SHOWN = 4
"""How many files of the same data a message names; of the rest it gives the number."""

_SERVER = "server"
_SERVER_KEYS = ("server-data", "server-examples", "server-labels", "seed")
"""What the server's images depend on, which are drawn from another data set by the seed."""


def different_data(results: Iterable[tuple[str, RunResult]]) -> list[str]:
    """Return which results are of one data set by its name, and of others by their digests.

    Results whose data are not known contradict none.

    Args:
        results: The data set of each as it is told apart from others, and the result.

    Returns:
        A message for each kind of data of each data set that differ; it names the files.
    """
    found: dict[tuple[Any, ...], dict[str, list[Path]]] = {}
    for dataset, result in results:
        for kind, sha256 in result.data.items():
            group = (kind, dataset, *_drawn_by(kind, result.configuration))
            found.setdefault(group, {}).setdefault(sha256, []).append(result.source)
    return [
        f"the {kind} images or labels of {_of(kind, dataset, drawn)} are not the same in all "
        f"results: {'; '.join(_told(sha256, files) for sha256, files in by_digest.items())}; make "
        "those of other data again, or take them away"
        for (kind, dataset, *drawn), by_digest in found.items()
        if len(by_digest) > 1
    ]


def _drawn_by(kind: str, configuration: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(map(configuration.get, _SERVER_KEYS)) if kind == _SERVER else ()


def _of(kind: str, dataset: str, drawn: list[Any]) -> str:
    return f"server-data {drawn[0]!r}" if kind == _SERVER else f"dataset {dataset!r}"


def _told(sha256: str, files: list[Path]) -> str:
    shown = ", ".join(str(path) for path in dict.fromkeys(files[:SHOWN]))
    more = f" and {len(files) - SHOWN} more" if len(files) > SHOWN else ""
    return f"SHA-256 {sha256[:12]} in {shown}{more}"
