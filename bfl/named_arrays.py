"""Arrays by name, several groups of them in one: each group's names begin with its own prefix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def add_prefix(prefix: str, arrays: Mapping[str, T]) -> dict[str, T]:
    """Return a group's arrays with the prefix before their names."""
    return {f"{prefix}{name}": array for name, array in arrays.items()}


def strip_prefix(prefix: str, arrays: Mapping[str, T]) -> dict[str, T]:
    """Return the group that ``add_prefix`` has put among others.

    Example:
        >>> strip_prefix("optimizer.", {"optimizer.momentum": 1, "mean": 2})
        {'momentum': 1}
    """
    found = (item for item in arrays.items() if item[0].startswith(prefix))
    return {name.removeprefix(prefix): array for name, array in found}
