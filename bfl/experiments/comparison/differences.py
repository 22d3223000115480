"""In what the configurations of runs differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bfl.experiments.results.table import ABSENT
from bfl.experiments.run.resume import FREE_TO_CHANGE


def differing_keys(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys that matter to the result and differ, in the order of the configurations.

    A key that one of them lacks, as those of older versions do, differs if another has it.

    Args:
        configs: The configurations; empty ones, of runs that have not begun, say nothing.
    """
    begun = [config for config in configs if config]
    keys = dict.fromkeys(key for config in begun for key in config if key not in FREE_TO_CHANGE)
    return [key for key in keys if len({repr(config.get(key)) for config in begun}) > 1]


def said(value: Any) -> str:
    """Return a configuration's value in full, as a table or a legend shows it.

    Example:
        >>> [said(value) for value in (0.001, True, "iid", None)]
        ['0.001', 'true', 'iid', '–']
    """
    if value is None:
        return ABSENT
    return str(value).lower() if isinstance(value, bool) else str(value)


def labels(names: Sequence[str], configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what to call runs in a legend: the values in which they differ, else their names.

    Example:
        >>> labels(["a", "b"], [{"rounds": 3, "seed": 0}, {"rounds": 3, "seed": 1}])
        ['seed 0', 'seed 1']
    """
    keys = differing_keys(configs)
    told = [" · ".join(f"{key} {said(config.get(key))}" for key in keys) for config in configs]
    return list(names) if len(set(told)) < len(told) else told
