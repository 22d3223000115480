"""Columns of a study's tables: numbers of its runs, in the units of the published table.

Published tables are read from CSV, and matched to a study by labels, completely or not at all.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pydantic
from pydantic import Field, field_validator

from bfl.aggregation.precision_spread import DISTANCE, SPREAD
from bfl.errors import ConfigurationError, nearest
from bfl.evaluation.evaluated_ensemble import ENSEMBLE, names_of_members, of_a_posterior
from bfl.evaluation.metrics import ExampleMetric, higher_is_better, metric_names, metrics
from bfl.evaluation.regression import CURVES, ERROR, RANKED_BY
from bfl.evaluation.uncertainty import uncertainties
from bfl.experiments.results.evaluated_clients import (
    CLIENTS,
    names_of_means,
    names_of_sets,
    number_of_a_client,
)
from bfl.experiments.results.foreign import BEFORE_CLOSING, OF_FOREIGN
from bfl.experiments.results.summary import RANDOM
from bfl.federation.privacy.accountant import EPSILON, EXAMPLE_EPSILON
from bfl.posteriors.posterior import FRACTION_AT_FLOOR
from bfl.registry import STRICT
from bfl.texts import read_text

BEST, MEAN, GAIN = "best-", "mean-", "retention-gain-"
"""Prefixes: a metric in the best evaluated round, a mean over these, a gain by retention."""

OF_POOLING = (SPREAD, DISTANCE)
"""Numbers of pooling that results keep of each round, besides the metrics."""

_ROUNDS_TO = re.compile(r"rounds-to-([a-z-]+)-([0-9]+(?:\.[0-9]+)?)")
_AT_ROUND = re.compile(r"([a-z-]+)-at-round-([1-9][0-9]*)")
_OF_FOREIGN = re.compile(
    rf"(?:{CLIENTS}global-|client-\d+-global-)?{OF_FOREIGN}.+-(auroc|aupr|fpr95)"
)
FORMS = (
    "rounds-to-METRIC-VALUE, such as rounds-to-accuracy-0.5; or METRIC-at-round-N, such as "
    "accuracy-at-round-10; or client-K-NAME, such as client-0-best-better-accuracy; or "
    "ood-SOURCE-auroc, ood-SOURCE-UNCERTAINTY-auroc, or aupr or fpr95 in its place"
)
"""Numbers whose names have a value in them, for messages."""

Rounds = Sequence[Mapping[str, float]]


class Column(pydantic.BaseModel):
    """One number of the runs, and where the published table has it.

    Attributes:
        metric: Its name in the runs' ``metrics.json``, or another of ``docs/studies.md``.
        title: The column's heading; by default the metric's name.
        scale: Factor of a run's number: 100 for percent.
        published: The published table's column; empty: it has none.
        published_spread: The published table's column of the spread; empty: it has none.
        published_spread_scale: Factor that gives the published spread the unit of the value.
    """

    model_config = STRICT

    metric: str
    title: str = ""
    scale: float = Field(1.0, gt=0.0)
    decimals: int = Field(3, ge=0, le=12)
    published: str = ""
    published_spread: str = ""
    published_spread_scale: float = Field(1.0, gt=0.0)

    @field_validator("metric")
    @classmethod
    def _is_known(cls, metric: str) -> str:
        known = numbers_of_a_run()
        forms = (rounds_to, at_round, number_of_a_client, _OF_FOREIGN.fullmatch)
        if metric not in known and not any(form(metric) for form in forms):
            guess = nearest(metric, known)
            hint = f"'{guess}' (did you mean that?), or " if guess else ""
            raise ValueError(f"{hint}a number of metrics.json, as `bfl glossary` has; or {FORMS}")
        return metric

    @property
    def higher_is_better(self) -> bool | None:
        """True if higher is better; None: no side is better."""
        # Of an ensemble and of its members it is the way of the same number of a posterior.
        number = of_a_posterior(self.metric).removeprefix(BEFORE_CLOSING)
        if found := _OF_FOREIGN.fullmatch(number):
            return found[1] != "fpr95"
        if number.startswith(GAIN):
            return None if number.endswith(f"-{RANDOM}") else True
        if rounds_to(self.metric):
            return False
        if self.metric.startswith(CLIENTS) or number_of_a_client(self.metric):
            number = next((name for name in metric_names() if number.endswith(name)), number)
        return higher_is_better(curve_of(number))

    @property
    def heading(self) -> str:
        """The text above the column."""
        return self.title or self.metric


def default_columns(base: Mapping[str, Any]) -> list[Column]:
    """Return the columns of a study that names none: accuracy in percent, or error; and the NLL."""
    numbers = base.get("task") == "regression"
    first = (
        Column(metric=ERROR, title="RMSE")
        if numbers
        else Column(metric="accuracy", title="accuracy (%)", scale=100.0, decimals=2)
    )
    return [first, Column(metric="negative-log-likelihood", title="NLL", decimals=3)]


def numbers_of_a_run() -> tuple[str, ...]:
    """Return the names of all numbers that a run may have."""
    retained = [m.name for m in metrics.classes() if issubclass(m, ExampleMetric) and m.retention]
    ranking = [u.name for u in uncertainties.classes() if u.retention]
    of_predictions = (
        *metric_names(),
        *(f"mean-{name}" for name in (*uncertainties.names(), RANKED_BY)),
        *(f"retention-area-{metric}-{by}" for metric in retained for by in ranking),
        *(f"retention-area-{metric}-{RANKED_BY}" for metric in CURVES),
        *(f"{GAIN}{metric}-{by}" for metric in retained for by in (*ranking, RANDOM)),
    )
    return (
        *of_predictions,
        "degree-of-spread",
        EPSILON,
        EXAMPLE_EPSILON,
        *(f"{BEST}{name}" for name in _directed()),
        *(f"{MEAN}{name}" for name in OF_POOLING),
        FRACTION_AT_FLOOR,
        *names_of_means(),
        *names_of_sets(),
        *(f"{BEFORE_CLOSING}{name}" for name in metrics.names()),
        *(f"{ENSEMBLE}{name}" for name in (*of_predictions, *names_of_members())),
    )


# Numbers of a run's rounds -----------------------------------------------------------------------


def kept_of_rounds() -> tuple[str, ...]:
    """Return the names of the numbers that results keep of each evaluated round."""
    of_ensembles = (f"{ENSEMBLE}{name}" for name in metrics.names())
    return ("round", *metric_names(), *of_ensembles, *OF_POOLING, FRACTION_AT_FLOOR)


def _directed() -> list[str]:
    """Return the names of the metrics of which a side is better."""
    return [name for name in metric_names() if higher_is_better(name) is not None]


def rounds_to(name: str) -> tuple[str, float] | None:
    """Return the metric and the value of a name such as ``rounds-to-accuracy-0.5``; None: no such.

    Example:
        >>> rounds_to("rounds-to-accuracy-0.5"), rounds_to("rounds-to-nowhere-0.5")
        (('accuracy', 0.5), None)
    """
    match = _ROUNDS_TO.fullmatch(name)
    known = match and match[1] in _directed()
    return (match[1], float(match[2])) if match and known else None


def at_round(name: str) -> tuple[str, int] | None:
    """Return the metric and the round of a name such as ``accuracy-at-round-10``; None: no such.

    Example:
        >>> at_round("ensemble-accuracy-at-round-10"), at_round("nowhere-at-round-10")
        (('ensemble-accuracy', 10), None)
    """
    match = _AT_ROUND.fullmatch(name)
    known = match and match[1] in kept_of_rounds() and match[1] != "round"
    return (match[1], int(match[2])) if match and known else None


def curve_of(name: str) -> str:
    """Return the metric whose curve a number is one of, or is the last or the best of.

    Example:
        >>> curve_of("accuracy-at-round-10"), curve_of("best-accuracy"), curve_of("accuracy")
        ('accuracy', 'accuracy', 'accuracy')
    """
    found = at_round(name)
    return found[0] if found else name.removeprefix(BEST)


def metric_of(name: str) -> str:
    """Return the metric that a column's number is made of; other names as they are.

    Example:
        >>> metric_of("rounds-to-accuracy-0.5"), metric_of("ensemble-accuracy-at-round-10")
        ('accuracy', 'accuracy')
    """
    reached = rounds_to(name)
    return reached[0] if reached else curve_of(of_a_posterior(name).removeprefix(BEFORE_CLOSING))


def number_of_curves(name: str, rounds: Rounds) -> float | None:
    """Return a number of a run's evaluated rounds; None: they do not have it.

    Args:
        name: ``best-METRIC``, the metric of the best evaluated round, NaN where none has a finite
            one; ``rounds-to-METRIC-VALUE``, the first evaluated round whose metric is as good as
            the value, infinite where none is; ``mean-log-precision-spread`` or
            ``mean-distance-from-average``, the mean over the evaluated rounds;
            ``fraction-at-scale-floor``, that of the last evaluated round; ``METRIC-at-round-N``,
            that of round N if it is evaluated.
        rounds: Their ``round`` and metrics.

    Source:
        Yang et al. (2023), HBFL, Table 1, has the best round's accuracy.
    """
    if reached := rounds_to(name):
        metric, value = reached
        sign = 1.0 if higher_is_better(metric) else -1.0
        evaluated = [row for row in rounds if metric in row]
        found = [row["round"] for row in evaluated if sign * row[metric] >= sign * value]
        return found[0] if found else math.inf if evaluated else None
    if at := at_round(name):
        return next((row.get(at[0]) for row in rounds if row.get("round") == at[1]), None)
    if name == FRACTION_AT_FLOOR:
        return next((row[name] for row in reversed(rounds) if name in row), None)
    if (best := name.removeprefix(BEST)) != name and best in _directed():
        return _of_finite(rounds, best, max if higher_is_better(best) else min)
    if (mean := name.removeprefix(MEAN)) != name and mean in OF_POOLING:
        return _of_finite(rounds, mean, lambda values: math.fsum(values) / len(values))
    return None


def _of_finite(rounds: Rounds, name: str, of: Callable[[Sequence[float]], float]) -> float | None:
    """Return a number of the finite values; NaN where none is finite, None without values."""
    values = [entry[name] for entry in rounds if name in entry]
    finite = [value for value in values if math.isfinite(value)]
    return of(finite) if finite else math.nan if values else None


LISTED = 6
"""Lines that do not match which a message names, at most."""

Key = tuple[tuple[str, str], ...]
"""The labels of a line by column, sorted by column."""

Labels = Sequence[Mapping[str, str]]


class Entry(NamedTuple):
    """A published number and its spread in the unit of its column; None: not published."""

    value: float | None = None
    spread: float | None = None


@dataclass(frozen=True)
class PublishedTable:
    """The numbers of a published table."""

    path: Path
    text: str
    lines: Mapping[Key, Mapping[str, Entry]]
    notes: tuple[str, ...] = ()

    def entry(self, key: Key, metric: str) -> Entry:
        """Return the number of a line, or one without value where there is none."""
        return self.lines.get(key, {}).get(metric, Entry())

    def mismatches(self, keys: Iterable[Key]) -> Iterable[str]:
        """Yield the differences between its lines and those of a study that are published."""
        ours = dict.fromkeys(keys)
        where = f"published table {self.path}"
        if absent := [key for key in ours if key not in self.lines]:
            yield (
                f"{where}: it has no line for {_listed(absent)}; correct the labels, or mark the "
                "row or the axis's value with published = false"
            )
        if extra := [key for key in self.lines if key not in ours]:
            yield (
                f"{where}: the study has nothing for its line {_listed(extra)}; add the rows, or "
                "name these lines in leave-out"
            )


def read_published(
    path: Path,
    columns: Sequence[Column],
    label_columns: Sequence[str],
    leave_out: Labels = (),
    fractions: Labels = (),
    *,
    text: str | None = None,
) -> PublishedTable:
    """Return a published table.

    Args:
        path: A CSV file with a header. The columns that ``columns`` names hold numbers, or nothing
            where none was published.
        leave_out: Labels by column; lines that have all labels of one of these are left out.
        fractions: Labels in the same form; lines whose spread is printed as a fraction of 1 where
            the value is in percent, or in what else ``scale`` makes of it.
        text: The file's content; None: it is read.

    Raises:
        ConfigurationError: The file cannot be read, lacks a column, has a line twice, or a cell
            that is no number.
    """
    try:
        text = read_text(path) if text is None else text
        header, *rows = (row for row in csv.reader(io.StringIO(text), strict=True) if row)
    except OSError as error:
        raise ConfigurationError(f"published table {path}: cannot be read: {error}") from error
    except (ValueError, csv.Error) as error:
        raise ConfigurationError(f"{path}: {error}") from error
    numeric = [name for c in columns for name in (c.published, c.published_spread) if name]
    named = [name for labels in (*leave_out, *fractions) for name in labels]
    if missing := [n for n in (*label_columns, *numeric, *named) if n not in header]:
        raise ConfigurationError(
            f"{path}: no column {', '.join(dict.fromkeys(missing))}; it has {', '.join(header)}"
        )
    lines: dict[Key, dict[str, Entry]] = {}
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise ConfigurationError(f"{path}: line {number}: not {len(header)} cells")
        line = dict(zip(header, map(str.strip, row), strict=True))
        numbers = {name: _number(f"{path}: line {number}: {name}", line[name]) for name in numeric}
        if any(labels.items() <= line.items() for labels in leave_out):
            continue
        key = tuple(sorted((name, line[name]) for name in label_columns))
        if key in lines:
            raise ConfigurationError(f"{path}: {_described(key)} stands there twice")
        fraction = any(labels.items() <= line.items() for labels in fractions)
        lines[key] = {c.metric: _entry(numbers, c, fraction) for c in columns if c.published}
    return PublishedTable(path, text, lines)


def _number(where: str, cell: str) -> float | None:
    try:
        return float(cell) if cell else None
    except ValueError as error:
        raise ConfigurationError(f"{where} is {cell!r}, which is no number") from error


def _entry(numbers: Mapping[str, float | None], column: Column, fraction: bool) -> Entry:
    spread = numbers.get(column.published_spread)
    if spread is not None:
        spread *= column.scale if fraction else column.published_spread_scale
    return Entry(numbers[column.published], spread)


def _described(key: Key) -> str:
    return ", ".join(f"{column} {label}" for column, label in key)


def _listed(keys: Sequence[Key]) -> str:
    more = f" and {len(keys) - LISTED} more" if len(keys) > LISTED else ""
    return "; ".join(f"({_described(key)})" for key in keys[:LISTED]) + more
