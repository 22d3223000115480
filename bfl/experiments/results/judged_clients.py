"""How each client's models do on its own test data, best and last: ``clients.json``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.evaluation.metrics import metrics
from bfl.experiments.results.round_log import PER_CLIENT
from bfl.federation.client_metrics import BETTER, MEME, PERSONAL, RETENTION_AREA, TEST_EXAMPLES

CLIENTS = "clients-"
"""What the names of means over the clients begin with."""

Positions = npt.NDArray[np.int64]


def judged_clients(
    rounds: Iterable[Mapping[str, Any]],
    right: npt.NDArray[np.bool_] | None,
    test_partition: Sequence[Positions | None] | None,
) -> dict[str, dict[str, float]]:
    """Return what each client's models have reached, by partition id as text.

    Args:
        rounds: The rounds' records.
        right: (N,) which of all test examples the final global posterior classifies correctly; None
            where the server has no head to predict with.
        test_partition: The test examples of each client; None for one with data of its own.

    Returns:
        By client ``test-examples``; ``global-accuracy``, that of the final global model on the
        client's test examples, where the server holds these; and of each metric that the client has
        measured after its training, ``meme-NAME``, ``personal-NAME`` and ``better-accuracy``, the
        value of the last round in which it did as ``last-...`` and, of accuracies, the greatest as
        ``best-...``. ``better-accuracy`` is the greater of both models' in one round, which Yang et
        al. (2023), Tables 2 and 3, seem to report the best of.
    """
    table: dict[int, dict[str, float]] = {}
    for client, part in enumerate(test_partition or ()):
        if part is not None and part.size:
            table[client] = {TEST_EXAMPLES: int(part.size)}
            if right is not None:
                table[client]["global-accuracy"] = float(np.mean(right[part]))
    for record in rounds:
        for entry in record.get(PER_CLIENT, ()):
            measured = {name: value for name, value in entry.items() if _is_judged(name, value)}
            if measured:
                _add(table.setdefault(int(entry["client"]), {}), entry, measured)
    return {str(client): table[client] for client in sorted(table)}


def _names() -> tuple[str, ...]:
    """Return the names of what clients may say of their models."""
    models = [f"{model}{metric}" for model in (MEME, PERSONAL) for metric in metrics.names()]
    return (*models, *(f"{model}{RETENTION_AREA}" for model in (MEME, PERSONAL)), BETTER)


def _is_judged(name: str, value: Any) -> bool:
    """Return whether an entry is such a number; what else a client says is passed over."""
    if name not in _names():
        return False
    return not name.endswith("accuracy") or 0.0 <= value <= 1.0


def _add(row: dict[str, float], entry: Mapping[str, Any], measured: Mapping[str, float]) -> None:
    # The server knows the number of those that it has given out itself.
    row.setdefault(TEST_EXAMPLES, entry.get(TEST_EXAMPLES, 0))
    for name, value in measured.items():
        row[f"last-{name}"] = value
        if name.endswith("accuracy"):
            row[f"best-{name}"] = max(value, row.get(f"best-{name}", value))


def means_over_clients(table: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the means over the clients that have a number, each client counting once.

    They are a part of ``metrics.json``, as ``clients-NAME``.
    """
    names = {name for row in table.values() for name in row if name != TEST_EXAMPLES}
    return {
        f"{CLIENTS}{name}": float(np.mean([row[name] for row in table.values() if name in row]))
        for name in sorted(names)
    }


def names_of_means() -> tuple[str, ...]:
    """Return all names that ``means_over_clients`` may give."""
    last = [f"last-{name}" for name in _names()]
    best = [f"best-{name}" for name in _names() if name.endswith("accuracy")]
    return tuple(f"{CLIENTS}{name}" for name in ("global-accuracy", *last, *best))


def told(table: Mapping[str, Mapping[str, float]]) -> str:
    """Return the mean accuracies over the clients in a line for people."""
    names = {
        "global": "global-accuracy",
        "meme": f"last-{MEME}accuracy",
        "personal": f"last-{PERSONAL}accuracy",
        "better of both": f"last-{BETTER}",
        "best of the better": f"best-{BETTER}",
    }
    said = []
    for what, name in names.items():
        values = [row[name] for row in table.values() if name in row]
        if values:
            said.append(f"{what} {np.mean(values):.4f}")
    return f"own test data of {len(table)} clients, mean accuracy: {', '.join(said)}"
