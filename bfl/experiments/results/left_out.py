"""Clients that were asked and are not in a round's pool: what a record says, and a person reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

CLIENTS_LEFT_OUT = "clients-left-out"
"""The entry of a round's record with one ``{"client", "name", "reason"}`` for each of them; it is
not there where all are in the pool. ``client`` is the partition id."""


def describe_left_out(rounds: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each client and reason: which rounds were made without it.

    Then one line if fewer than half of the clients that were asked made the last posterior.
    """
    found: dict[tuple[str, str], list[int]] = {}
    for record in rounds:
        for entry in record.get(CLIENTS_LEFT_OUT, ()):
            found.setdefault((str(entry["name"]), str(entry["reason"])), []).append(record["round"])
    lines = [
        f"{name_rounds(numbers)} without {name} ({why})" for (name, why), numbers in found.items()
    ]
    if rounds:
        pooled, left_out = rounds[-1].get("clients", 0), len(rounds[-1].get(CLIENTS_LEFT_OUT, ()))
        if pooled < left_out:
            lines.append(
                f"the posterior is made by fewer than half of the clients: {pooled} of "
                f"{pooled + left_out}"
            )
    return lines


def name_rounds(numbers: Sequence[int]) -> str:
    """Return rounds in words: "round 3", "rounds 3 and 4", "rounds 3, 5 and 6"."""
    shown = [str(number) for number in numbers[:10]]
    if len(numbers) == 1:
        return f"round {shown[0]}"
    if len(numbers) > len(shown):
        return f"{len(numbers)} rounds, the first {', '.join(shown)},"
    return f"rounds {', '.join(shown[:-1])} and {shown[-1]}"
