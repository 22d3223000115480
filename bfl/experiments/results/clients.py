"""Numbers of each client: its models' metrics, and the rounds that it is missing from.

``run.json:clients`` has the metrics on each client's own test data.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.closing.conformal import SETS
from bfl.evaluation.metrics import Metric, metric_names, metrics
from bfl.evaluation.metrics.base import OF_SETS
from bfl.evaluation.regression import ERROR
from bfl.experiments.results.run_folder import PER_CLIENT
from bfl.experiments.results.table import NAMES, three_digits
from bfl.federation.client_metrics import (
    BETTER,
    COUNTS,
    MEME,
    OWN_TEST,
    PERSONAL,
    RETENTION_AREA,
    TEST_EXAMPLES,
)
from bfl.texts import few

CLIENTS = "clients-"  # prefix of the names of means over the clients
ACCURACY = "accuracy"
CENTRAL = "all data in one place"
INTERVAL, DIFFERENCE, OF_DIFFERENCE = "interval", "difference", "difference-interval"
LOSS, OF_LOSS, ONE_CLASS = "nll-difference", "nll-difference-interval", "only-class"
UNPAIRED = "unpaired"
GAIN, OWN, OF_SEVERAL = "federation − other model", "own", "own-of-several-classes"

CLIENTS_LEFT_OUT = "clients-left-out"
"""The entry of a round's record with a ``{"client", "name", "reason"}`` for each selected client
that is not in its pool, if any; ``client`` is the partition id."""

Positions = npt.NDArray[np.int64]


def metrics_of_clients() -> tuple[dict[str, type[Metric]], dict[str, type[Metric]]]:
    """Return metrics that clients may report, by name: of their models alone, and all."""
    accuracy, registered = metrics.get("accuracy"), metrics.classes()
    of_models = {f"{model}{each.name}": each for model in (MEME, PERSONAL) for each in registered}
    of_models |= {f"{model}{RETENTION_AREA}": accuracy for model in (MEME, PERSONAL)}
    of_models[BETTER] = accuracy
    plain = {f"{of}{metric.name}": metric for of in ("", OWN_TEST) for metric in registered}
    return of_models, {**of_models, **plain}


def evaluated_clients(
    rounds: Iterable[Mapping[str, Any]],
    evaluate: Callable[[Positions], Mapping[str, float]] | None,
    test_partition: Sequence[Positions | None] | None,
    *,
    due: Callable[[int], bool],
    models: Collection[str],
    measured: Mapping[int, Mapping[str, float]] | None = None,
) -> dict[str, dict[str, float]]:
    """Return metrics of each client's models, by partition id as text.

    Args:
        evaluate: Returns the metrics of the final (closed) global network on a subset of the test
            examples; None if the server has no head to predict with.
        test_partition: The test examples of each client; None for a client with its own data.
        due: Returns whether clients evaluate their models after a round; other reports, such as of
            the last round before a resume, would give a client more chances for its best one.
        models: The models that clients have, of ``MEME`` and ``PERSONAL``.
        measured: What nodes have measured of the final model on test data of their own.

    Returns:
        By client ``test-examples``; ``global-NAME`` of the final global network; ``last-NAME`` of
        the client's own models (``meme-``, ``personal-``, ``better-accuracy``) and, for accuracies,
        ``best-NAME``. Yang et al. (2023) report the best ``better-accuracy`` in Tables 2 to 4
        (section 5).
    """
    finals = (*metric_names(), *names_of_sets())
    table = {
        client: {name: row[name] for name in COUNTS if name in row}
        | {f"global-{name}": row[name] for name in finals if name in row}
        for client, row in (measured or {}).items()
        if row.get(TEST_EXAMPLES)
    }
    for client, part in enumerate(test_partition or ()):
        if part is not None and part.size:
            table[client] = {TEST_EXAMPLES: int(part.size)}
            if evaluate is not None:
                table[client] |= {f"global-{name}": value for name, value in evaluate(part).items()}
    reported, _ = metrics_of_clients()
    known = [
        name
        for name in reported
        if name.startswith(tuple(models)) or (name == BETTER and PERSONAL in models)
    ]
    for record in (record for record in rounds if due(record["round"])):
        for entry in record.get(PER_CLIENT, ()):
            found = {name: entry[name] for name in known if name in entry}
            if not found:
                continue
            # For test examples that it has assigned itself, the server knows the number.
            row = table.setdefault(int(entry["client"]), {})
            row.setdefault(TEST_EXAMPLES, entry.get(TEST_EXAMPLES, 0))
            for name, value in found.items():
                row[f"last-{name}"] = value
                if name.endswith(ACCURACY):
                    row[f"best-{name}"] = max(value, row.get(f"best-{name}", value))
    return {str(client): row for client, row in sorted(table.items())}


def means_over_clients(table: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return unweighted means over the clients that have a number, for ``metrics.json``."""
    names = {name for row in table.values() for name in row if name not in COUNTS}
    return {
        f"{CLIENTS}{name}": float(np.mean([row[name] for row in table.values() if name in row]))
        for name in sorted(names)
    }


def names_of_sets() -> tuple[str, ...]:
    """Return the names of all metrics of conformal prediction sets."""
    return tuple(f"{kind}-{what}" for kind in SETS for what in OF_SETS)


def names_of_means() -> tuple[str, ...]:
    """Return all names that ``means_over_clients`` may give."""
    reported, _ = metrics_of_clients()
    last = [f"last-{name}" for name in reported]
    best = [f"best-{name}" for name in reported if name.endswith("accuracy")]
    of_all = [f"global-{name}" for name in (*metric_names(), *names_of_sets())]
    return tuple(f"{CLIENTS}{name}" for name in (*of_all, *last, *best))


def number_of_a_client(name: str) -> tuple[str, str] | None:
    """Return client and metric of a name such as ``client-3-best-better-accuracy``, or None."""
    match = re.fullmatch(r"client-(0|[1-9][0-9]*)-(.+)", name)
    known = match and f"{CLIENTS}{match[2]}" in names_of_means()
    return (match[1], match[2]) if match and known else None


def describe_left_out(rounds: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> list[str]:
    """Return a line for each client and reason: which rounds were made without it.

    Then one line if fewer than half of the selected clients made the last posterior.
    """
    found: dict[tuple[str, str], list[int]] = {}
    for record in rounds:
        for entry in record.get(CLIENTS_LEFT_OUT, ()):
            client = int(entry["client"])
            name = names[client] if client < len(names) else str(entry["name"])
            found.setdefault((name, str(entry["reason"])), []).append(record["round"])
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
    """Return rounds in words: "round 3", "rounds 3, 4"."""
    return f"round{'s' * (len(numbers) > 1)} {few(list(map(str, numbers)))}"


def baseline_tables(found: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return tables of a federation and its baselines, as in ``run.json``, by their captions."""
    tables = {"The federation beside the other models": own_rows(found)}
    tables["All models on the same test examples, with intervals"] = baseline_rows(found)
    return {caption: rows for caption, rows in tables.items() if rows}


def baseline_rows(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row a model, of texts in three digits; accuracies have their 95 % intervals."""
    models = {"the federation": found["federation"], CENTRAL: found.get("central")}
    models |= {f"{name} alone": own for name, own in found.get("local", {}).items()}
    rows = []
    for model, own in ((model, own) for model, own in models.items() if own):
        hidden = ("examples", OWN, INTERVAL, DIFFERENCE, OF_DIFFERENCE, LOSS, OF_LOSS)
        shown = {NAMES.get(n, n): three_digits(own[n]) for n in own if n not in hidden}
        if INTERVAL in own:
            shown[next(iter(shown))] += f" ({' to '.join(map(three_digits, own[INTERVAL]))})"
        beside = _side_by_side(own) if DIFFERENCE in own else {}  # its last two say more
        rows.append({"model": model, **shown} | {n: beside[n] for n in [*beside][-2:]})
    return rows


def own_rows(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a table of the federation beside each other model: a row a comparison.

    Clients' own models have their client's test examples, where it has such ones, else all.
    """
    local = found.get("local", {})
    on = " on the server's rows" if any(OWN in row for row in local.values()) else ""
    rows = {f"{n} alone{'' if OWN in row else on}": row.get(OWN, row) for n, row in local.items()}
    rows |= {CENTRAL: found.get("central"), "all clients' own models": found.get(OWN)}
    alike = [name for name, row in local.items() if ONE_CLASS in row.get(OWN, {})]
    rows |= {f"the same without {few(alike, 3)}": found.get(OF_SEVERAL)}
    return [{"model": name} | _side_by_side(row) for name, row in rows.items() if row]


def _side_by_side(row: Mapping[str, Any]) -> dict[str, str]:
    errors, count, gain = ERROR in row, row.get("examples", 0), row.get(DIFFERENCE)

    def shown(value: float) -> str:
        right = count and not errors
        return f"{round(count * value, 1):g} of {count}" if right else three_digits(value)

    own = row[ERROR] if errors else row[ACCURACY]
    if gain is None:
        return {"other model": shown(own), "shown": "nothing: not paired"}
    found = {"federation": shown(own + gain), "other model": shown(own)}
    low, high = row.get(OF_DIFFERENCE, (-math.inf, math.inf))
    low, high = (low, high) if errors else (max(low, -1.0), min(high, 1.0))
    form = "+.3g" if errors else "+.3f"
    ends = f"{_signed(low, form)} to {_signed(high, form)}{', unpaired' * (UNPAIRED in row)}"
    known = f" ({ends})" if OF_DIFFERENCE in row else ""
    found[GAIN] = f"{_signed(gain, form)}{known}"
    if ONE_CLASS in row:
        verdict = f"nothing: all are “{row[ONE_CLASS]}”"
    elif low <= 0.0 <= high:
        verdict = "not decided" if known else "nothing: too few examples"
    else:
        verdict = f"the federation is {'worse' if (low > 0.0) == errors else 'better'}"
    return found | {"shown": verdict}


def _signed(value: float, form: str = "+.3f") -> str:
    return format(value, form).replace("-", "−")


def baseline_verdict(found: Mapping[str, Any]) -> str:
    """Return sentences on whether federating was worth it, by the interval of the gain.

    The last one is on the negative log-likelihood of the same test examples, if it decides else.
    It is of all clients' own models together, without clients whose test examples are of one
    class, where others are left; or of the one of all data.
    """
    row, other, without = found.get("central", {}), f"the model of {CENTRAL}", ""
    if found.get(OWN):
        local = found["local"]
        own = sum(OWN in each for each in local.values())
        alike = [name for name, each in local.items() if ONE_CLASS in each.get(OWN, {})]
        row = found.get(OF_SEVERAL) or found[OWN]
        if alike and not found.get(OF_SEVERAL):
            return "Nothing is shown: the test examples of each client are of one class."
        without = f" (without {few(alike, 3)}, of one class)" if alike else ""
        where = "each on its own client" if own else "on average"
        some = f" ({own} of {len(local)} clients have tested both)" if 0 < own < len(local) else ""
        other = f"the clients' own models, {where}{some},"
    each = _side_by_side(row) if row else {}
    if GAIN not in each:
        return "The models have not been compared on the same test examples."
    words = ("is right for", f" test examples{without}", "for", "+")
    if ERROR in row:
        words = ("has an RMSE of", "", "of", "−")
    shown, (low, high) = each["shown"], row.get(OF_DIFFERENCE, (0.0, 0.0))
    if shown == "not decided":
        least = three_digits(max((high - low) / 2.0, abs(row[DIFFERENCE])))
        shown = f"not decided: {row['examples']} examples show no difference below about {least}"
    low, high = row.get(OF_LOSS, (0.0, 0.0))
    side = "better" if high < 0.0 else "worse" if low > 0.0 else ""
    if side and not shown.endswith(side):
        ends = f"{_signed(row[LOSS])} ({_signed(low)} to {_signed(high)})"
        shown += f". By NLL of the same examples the federation is {side}: {ends}, − for it"
    gain, more = each[GAIN].replace("(", "(95 %: "), ""
    central = _side_by_side(found["central"]) if found.get("central") and found.get(OWN) else {}
    if central.get("shown", "").startswith("the federation"):
        more = f" Beside {CENTRAL}, {central['shown']}: {central[GAIN]}."
    return (
        f"The federation {words[0]} {each['federation']}{words[1]}, {other} {words[2]} "
        f"{each['other model'].partition(' ')[0]}: {gain}, {words[3]} for the federation. "
        f"{shown[0].upper()}{shown[1:]}.{more}"
    )
