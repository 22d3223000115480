"""Metrics of each client's models on its own test data: ``run.json:clients``.

Metrics that clients report are rejected outside their possible range.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.closing.conformal import SETS
from bfl.data.corruptions import CORRUPTIONS
from bfl.evaluation.metrics import Metric, metric_names, metrics
from bfl.evaluation.prediction_sets import NUMBERS
from bfl.evaluation.regression import ERROR
from bfl.experiments.results.foreign import CORRUPTED, METRICS, OF_FOREIGN
from bfl.experiments.results.run_folder import PER_CLIENT, RunFolder
from bfl.federation.client_metrics import (
    BETTER,
    LEAST,
    MEME,
    NAMESPACE,
    OWN_TEST,
    PERSONAL,
    RETENTION_AREA,
    TEST_EXAMPLES,
    TRAIN_STEPS,
    of_evaluated_models,
)


def metrics_of_models() -> dict[str, type[Metric]]:
    """Return the names that clients may report of their models, each with its metric."""
    accuracy = metrics.get("accuracy")
    of_models = {
        f"{model}{name}": metrics.get(name)
        for model in (MEME, PERSONAL)
        for name in metrics.names()
    }
    areas = {f"{model}{RETENTION_AREA}": accuracy for model in (MEME, PERSONAL)}
    return {**of_models, **areas, BETTER: accuracy}


@functools.lru_cache(maxsize=1)
def _named(registered: tuple[type[Metric], ...]) -> dict[str, type[Metric]]:
    """Return all names under which a metric may be reported, of any model.

    Args:
        registered: All metrics; the argument keys the cache.
    """
    plain = {f"{of}{metric.name}": metric for of in ("", OWN_TEST) for metric in registered}
    return {**metrics_of_models(), **plain}


def impossible_numbers(measured: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Yield the names and values of numbers that a client cannot have measured.

    A metric has its bounds. Times, sizes and numbers of examples are at least 0, and steps are
    whole and at least 1. The better of two accuracies is the greater of the reported ones. Numbers
    of other names are not checked.
    """
    known = _named(metrics.classes())
    for name, value in measured.items():
        bounded = name not in known or known[name].possible(value)
        too_little = name in LEAST and not LEAST[name] <= value < math.inf
        no_steps = name == TRAIN_STEPS and value % 1
        if not bounded or too_little or no_steps or (name == BETTER and value != _better(measured)):
            yield name, value


def _better(measured: Mapping[str, float]) -> float | None:
    """Return the greatest reported accuracy of a client's models; None without any."""
    names = {f"{model}accuracy" for model in (MEME, PERSONAL)} & measured.keys()
    return max((measured[name] for name in names), default=None)


CLIENTS = "clients-"
"""Prefix of the names of means over the clients."""

IMPOSSIBLE = "impossible-"
"""Prefix of the names of impossible numbers that clients reported."""

Positions = npt.NDArray[np.int64]


def evaluated_clients(
    rounds: Iterable[Mapping[str, Any]],
    evaluate: Callable[[Positions], Mapping[str, float]] | None,
    test_partition: Sequence[Positions | None] | None,
    *,
    due: Callable[[int], bool],
    models: Collection[str],
) -> dict[str, dict[str, float]]:
    """Return metrics of each client's models, by partition id as text.

    Args:
        evaluate: Returns the metrics of the final (closed) global network on a subset of the test
            examples, with those of foreign and corrupted images; None if the server has no head to
            predict with.
        test_partition: The test examples of each client; None for a client with its own data.
        due: Returns whether clients evaluate their models after a round; other reports are ignored,
            as they would give a client more chances for its best round.
        models: The models that clients have, of ``MEME`` and ``PERSONAL``; reports of other models
            are ignored.

    Returns:
        By client ``test-examples``; ``global-NAME``, metrics of the final global network on the
        client's test examples, if the server has these; and for each metric that the client has
        measured after its training, ``meme-NAME``, ``personal-NAME`` and ``better-accuracy``, the
        last value as ``last-...`` and, for accuracies, the greatest one as ``best-...``.
        ``better-accuracy`` is the greater accuracy of both models in one round. Yang et al. (2023)
        report its best value in Tables 2 to 4: "the trained μ of the meme model and the trained θ
        of the local model are used to infer test sets and we record the best accuracy between them"
        (section 5).
    """
    table: dict[int, dict[str, float]] = {}
    for client, part in enumerate(test_partition or ()):
        if part is not None and part.size:
            table[client] = {TEST_EXAMPLES: int(part.size)}
            if evaluate is not None:
                table[client] |= {f"global-{name}": value for name, value in evaluate(part).items()}
    known = _measured_of(models)
    for record in (record for record in rounds if due(record["round"])):
        for entry in record.get(PER_CLIENT, ()):
            if not known.isdisjoint(entry):
                _add(table.setdefault(int(entry["client"]), {}), entry, known)
    return {str(client): _believed(table[client]) for client in sorted(table)}


def _measured_of(models: Collection[str]) -> frozenset[str]:
    """Return the names of the metrics that clients with these models may report."""
    known = {name for name in metrics_of_models() if name.startswith(tuple(models))}
    return frozenset(known | {BETTER} if PERSONAL in models else known)


def drop_evaluations(folder: RunFolder, due: Callable[[int], bool]) -> None:
    """Drop clients' evaluations from the records of rounds in which none is due.

    A run with additional rounds has one such round: its former last one.

    Raises:
        RunError: The records cannot be written.
    """
    records = folder.rounds()
    if not all(due(record["round"]) for record in records):
        folder.write_rounds([r if due(r["round"]) else _without_evaluation(r) for r in records])


def _without_evaluation(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a round's record without the clients' evaluations."""

    def without(entry: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
        said = {name: name.removeprefix(prefix) for name in entry if name.startswith(prefix)}
        own = {n for n, of in said.items() if of_evaluated_models(of) or of == TEST_EXAMPLES}
        return {name: value for name, value in entry.items() if name not in own}

    kept = without(record, NAMESPACE)
    if PER_CLIENT in record:
        kept[PER_CLIENT] = [without(entry) for entry in record[PER_CLIENT]]
    return kept


def _add(row: dict[str, float], entry: Mapping[str, Any], known: Collection[str]) -> None:
    """Add a client's report of a round; unknown names are ignored."""
    examples = entry.get(TEST_EXAMPLES, 0)
    if examples >= 0 and float(examples).is_integer():
        # For test examples that it has assigned itself, the server knows the number.
        row.setdefault(TEST_EXAMPLES, examples)
    else:
        row[f"{IMPOSSIBLE}{TEST_EXAMPLES}"] = examples
    said = {name: entry[name] for name in metrics_of_models() if name in entry and name in known}
    row.update({f"{IMPOSSIBLE}{name}": value for name, value in impossible_numbers(said)})
    for name, value in said.items():
        row[f"last-{name}"] = value
        if name.endswith("accuracy"):
            row[f"best-{name}"] = max(value, row.get(f"best-{name}", value))


def _believed(row: Mapping[str, float]) -> dict[str, float]:
    """Return a client's row, without its reports if some of them are impossible."""
    said = ("last-", "best-") if _impossible(row) else ()
    return {name: value for name, value in row.items() if not name.startswith(said)}


def _impossible(row: Mapping[str, float]) -> dict[str, float]:
    """Return the impossible numbers in a client's row, by their reported names."""
    return {
        name.removeprefix(IMPOSSIBLE): value
        for name, value in row.items()
        if name.startswith(IMPOSSIBLE)
    }


def means_over_clients(table: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return unweighted means over the clients that have a number, for ``metrics.json``."""
    names = {
        name
        for row in table.values()
        for name in row
        if name != TEST_EXAMPLES and not name.startswith(IMPOSSIBLE)
    }
    return {
        f"{CLIENTS}{name}": float(np.mean([row[name] for row in table.values() if name in row]))
        for name in sorted(names)
    }


def names_of_sets() -> tuple[str, ...]:
    """Return the names of all metrics of conformal prediction sets."""
    return tuple(f"{kind}-{what}" for kind in SETS for what in NUMBERS)


def names_of_means() -> tuple[str, ...]:
    """Return all names that ``means_over_clients`` may give, except those of foreign images."""
    corrupted = [f"{CORRUPTED}{kind}-{what}" for kind in CORRUPTIONS for what in METRICS]
    last = [f"last-{name}" for name in metrics_of_models()]
    best = [f"best-{name}" for name in metrics_of_models() if name.endswith("accuracy")]
    of_all = [f"global-{name}" for name in (*metric_names(), *names_of_sets(), *corrupted)]
    return tuple(f"{CLIENTS}{name}" for name in (*of_all, *last, *best))


def number_of_a_client(name: str) -> tuple[str, str] | None:
    """Return the client and the metric of a name such as ``client-3-best-better-accuracy``.

    None for any other name. Clients are numbered by their partition ids, from 0.
    """
    match = re.fullmatch(r"client-(0|[1-9][0-9]*)-(.+)", name)
    if not match:
        return None
    known = f"{CLIENTS}{match[2]}" in names_of_means() or _OF_FOREIGN.fullmatch(match[2])
    return (match[1], match[2]) if known else None


_OF_FOREIGN = re.compile(rf"global-{OF_FOREIGN}.+-(auroc|aupr|fpr95)")


def told(table: Mapping[str, Mapping[str, float]], called: Sequence[str] = ()) -> str:
    """Return a line with the mean accuracies, or errors, over the clients.

    Args:
        table: A result of ``evaluated_clients``.
        called: The clients' names, whose values are listed; empty: they have none.
    """
    numbers = any(f"global-{ERROR}" in row for row in table.values())
    metric = ERROR if numbers else "accuracy"
    names = {
        "global": f"global-{metric}",
        "meme": f"last-{MEME}accuracy",
        "personal": f"last-{PERSONAL}accuracy",
        "better of both": f"last-{BETTER}",
        "best of the better": f"best-{BETTER}",
    }
    of_all = {
        what: [row[name] for row in table.values() if name in row] for what, name in names.items()
    }
    said = [f"{what} {np.mean(values):.4f}" for what, values in of_all.items() if values]
    left_out = [
        f"client {client} ({', '.join(f'{name} {value:g}' for name, value in impossible.items())})"
        for client, row in table.items()
        if (impossible := _impossible(row))
    ]
    line = f"own test data of {len(table)} clients, mean {metric}: {', '.join(said) or 'unknown'}"
    by_name = [
        f"{name} {row[f'global-{metric}']:.4f} of {row[TEST_EXAMPLES]:g}"
        for client, name in enumerate(called)
        if f"global-{metric}" in (row := table.get(str(client), {}))
    ]
    if by_name:
        line += f"; global, by name: {', '.join(by_name)}"
    if left_out:
        line += f"; left out for impossible reports: {', '.join(left_out)}"
    return line
