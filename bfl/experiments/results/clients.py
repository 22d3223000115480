"""Numbers of each client: its models' metrics, and the rounds that it is missing from.

``run.json:clients`` has the metrics on each client's own test data. Reported ones are rejected
outside their possible range.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.closing.conformal import SETS
from bfl.evaluation.metrics import Metric, metric_names, metrics
from bfl.evaluation.metrics.base import OF_SETS
from bfl.evaluation.regression import ERROR
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
)

CLIENTS = "clients-"  # prefix of the names of means over the clients
IMPOSSIBLE = "impossible-"  # prefix of the names of impossible numbers that clients reported

CLIENTS_LEFT_OUT = "clients-left-out"
"""The entry of a round's record with a ``{"client", "name", "reason"}`` for each selected client
that is not in its pool, if any; ``client`` is the partition id."""

Positions = npt.NDArray[np.int64]


@lru_cache(maxsize=1)
def _bounded(registered: tuple[type[Metric], ...]) -> tuple[dict[str, type[Metric]], ...]:
    """Return the metrics that clients may report by name: of their models, and of any network."""
    accuracy = metrics.get("accuracy")
    of_models = {f"{model}{each.name}": each for model in (MEME, PERSONAL) for each in registered}
    of_models |= {f"{model}{RETENTION_AREA}": accuracy for model in (MEME, PERSONAL)}
    of_models[BETTER] = accuracy
    plain = {f"{of}{metric.name}": metric for of in ("", OWN_TEST) for metric in registered}
    return of_models, {**of_models, **plain}


def impossible_numbers(measured: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Yield the names and values of numbers that no client can have measured."""
    _, known = _bounded(metrics.classes())
    accuracies = [measured[n] for m in (MEME, PERSONAL) if (n := f"{m}accuracy") in measured]
    for name, value in measured.items():
        if (
            (name in known and not known[name].possible(value))
            or (name in LEAST and not LEAST[name] <= value < math.inf)
            or (name == TRAIN_STEPS and value % 1)
            or (name == BETTER and value != max(accuracies, default=None))
        ):
            yield name, value


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
            examples; None if the server has no head to predict with.
        test_partition: The test examples of each client; None for a client with its own data.
        due: Returns whether clients evaluate their models after a round; other reports would give
            a client more chances for its best round.
        models: The models that clients have, of ``MEME`` and ``PERSONAL``.

    Returns:
        By client ``test-examples``; ``global-NAME`` of the final global network; ``last-NAME`` of
        the client's own models (``meme-``, ``personal-``, ``better-accuracy``) and, for accuracies,
        ``best-NAME``. Yang et al. (2023) report the best ``better-accuracy`` in Tables 2 to 4
        (section 5). A client with an impossible report has ``impossible-NAME`` in place of these.
    """
    table: dict[int, dict[str, float]] = {}
    for client, part in enumerate(test_partition or ()):
        if part is not None and part.size:
            table[client] = {TEST_EXAMPLES: int(part.size)}
            if evaluate is not None:
                table[client] |= {f"global-{name}": value for name, value in evaluate(part).items()}
    reported, _ = _bounded(metrics.classes())
    known = [
        name
        for name in reported
        if name.startswith(tuple(models)) or (name == BETTER and PERSONAL in models)
    ]
    for record in (record for record in rounds if due(record["round"])):
        for entry in record.get(PER_CLIENT, ()):
            measured = {name: entry[name] for name in known if name in entry}
            if not measured:
                continue
            row = table.setdefault(int(entry["client"]), {})
            examples = entry.get(TEST_EXAMPLES, 0)
            if examples >= 0 and float(examples).is_integer():
                # For test examples that it has assigned itself, the server knows the number.
                row.setdefault(TEST_EXAMPLES, examples)
            else:
                row[f"{IMPOSSIBLE}{TEST_EXAMPLES}"] = examples
            row.update({f"{IMPOSSIBLE}{name}": v for name, v in impossible_numbers(measured)})
            for name, value in measured.items():
                row[f"last-{name}"] = value
                if name.endswith("accuracy"):
                    row[f"best-{name}"] = max(value, row.get(f"best-{name}", value))
    believed = {}
    for client, row in sorted(table.items()):
        dropped = ("last-", "best-") if any(n.startswith(IMPOSSIBLE) for n in row) else ()
        believed[str(client)] = {n: v for n, v in row.items() if not n.startswith(dropped)}
    return believed


def drop_evaluations(folder: RunFolder, due: Callable[[int], bool]) -> None:
    """Drop clients' evaluations from the records of rounds in which none is due.

    A run with additional rounds has one such round: its former last one.
    """

    def without(entry: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
        kept = {}
        for name, value in entry.items():
            own = name.removeprefix(prefix)
            measured = own in (BETTER, TEST_EXAMPLES) or own.startswith((MEME, PERSONAL))
            if not (name.startswith(prefix) and measured):
                kept[name] = value
        return kept

    records = folder.rounds()
    if all(due(record["round"]) for record in records):
        return
    for place, record in enumerate(records):
        if not due(record["round"]):
            records[place] = without(record, NAMESPACE)
            if PER_CLIENT in record:
                records[place][PER_CLIENT] = [without(entry) for entry in record[PER_CLIENT]]
    folder.write_rounds(records)


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
    return tuple(f"{kind}-{what}" for kind in SETS for what in OF_SETS)


def names_of_means() -> tuple[str, ...]:
    """Return all names that ``means_over_clients`` may give."""
    reported, _ = _bounded(metrics.classes())
    last = [f"last-{name}" for name in reported]
    best = [f"best-{name}" for name in reported if name.endswith("accuracy")]
    of_all = [f"global-{name}" for name in (*metric_names(), *names_of_sets())]
    return tuple(f"{CLIENTS}{name}" for name in (*of_all, *last, *best))


def number_of_a_client(name: str) -> tuple[str, str] | None:
    """Return client and metric of a name such as ``client-3-best-better-accuracy``, or None."""
    match = re.fullmatch(r"client-(0|[1-9][0-9]*)-(.+)", name)
    known = match and f"{CLIENTS}{match[2]}" in names_of_means()
    return (match[1], match[2]) if match and known else None


def describe_clients(table: Mapping[str, Mapping[str, float]], called: Sequence[str] = ()) -> str:
    """Return a line with the mean accuracies, or errors, over clients, and those of named ones."""
    metric = ERROR if any(f"global-{ERROR}" in row for row in table.values()) else "accuracy"
    names = {
        "global": f"global-{metric}",
        "meme": f"last-{MEME}accuracy",
        "personal": f"last-{PERSONAL}accuracy",
        "better of both": f"last-{BETTER}",
        "best of the better": f"best-{BETTER}",
    }
    means = means_over_clients(table)
    found = {what: means.get(f"{CLIENTS}{name}") for what, name in names.items()}
    shown = [f"{what} {value:.4f}" for what, value in found.items() if value is not None]
    line = f"own test data of {len(table)} clients, mean {metric}: {', '.join(shown) or 'unknown'}"
    by_name = [
        f"{name} {row[f'global-{metric}']:.4f} of {row[TEST_EXAMPLES]:g}"
        for client, name in enumerate(called)
        if f"global-{metric}" in (row := table.get(str(client), {}))
    ]
    left_out = [
        f"client {client} ({', '.join(each)})"
        for client, row in table.items()
        if (
            each := [
                f"{name.removeprefix(IMPOSSIBLE)} {value:g}"
                for name, value in row.items()
                if name.startswith(IMPOSSIBLE)
            ]
        )
    ]
    line += f"; global, by name: {', '.join(by_name)}" if by_name else ""
    return line + (f"; left out for impossible reports: {', '.join(left_out)}" if left_out else "")


def describe_left_out(rounds: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each client and reason: which rounds were made without it.

    Then one line if fewer than half of the selected clients made the last posterior.
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


def baseline_rows(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a table of a federation and of its baselines, as in ``run.json``: a row a model."""
    rows = [{"model": "the federation", **found["federation"]}] if found else []
    if "central" in found:
        rows.append({"model": "all data in one place", **found["central"]})
    rows += [{"model": f"{name} alone", **own} for name, own in found.get("local", {}).items()]
    return rows
