"""Columns of a study's tables: numbers of runs, in the units of the published table."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pydantic
from pydantic import Field, field_validator

from bfl.aggregation.precision_spread import DISTANCE, SPREAD
from bfl.errors import nearest
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

BEST, MEAN, GAIN = "best-", "mean-", "retention-gain-"
"""Prefixes: a metric's best value over rounds, its mean over rounds, a gain by retention."""


OF_POOLING = (SPREAD, DISTANCE)
"""Numbers of pooling that results keep for each round, besides the metrics."""


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
"""Forms of names that contain a value, for messages."""


Rounds = Sequence[Mapping[str, float]]


class Column(pydantic.BaseModel):
    """A number of the runs, and its column in the published table.

    Attributes:
        metric: Its name in the runs' ``metrics.json``, or another name of ``docs/studies.md``.
        title: The column's heading; by default the metric's name.
        scale: Factor of a run's number: 100 for percent.
        published: The published table's column; empty: none.
        published_spread: The published table's column of spreads; empty: none.
        published_spread_scale: Factor from the published spread's unit to the value's.
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
            initials = {
                "".join(word[0] for word in name.split("-") if word): name for name in known
            }
            guess = initials.get(metric.lower()) or nearest(metric, known)
            hint = f"'{guess}' (did you mean that?), or " if guess else ""
            raise ValueError(f"{hint}a number of metrics.json, as `bfl glossary` has; or {FORMS}")
        return metric

    @property
    def higher_is_better(self) -> bool | None:
        """True if higher is better; None: neither is."""
        # A number of an ensemble or of a member has the direction of the posterior's number.
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
        """The column's heading."""
        return self.title or self.metric


def default_columns(base: Mapping[str, Any]) -> list[Column]:
    """Return the default columns: accuracy in percent or, for regression, the error; the NLL."""
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
    """Return the names of the numbers that results keep for each evaluated round."""
    of_ensembles = (f"{ENSEMBLE}{name}" for name in metrics.names())
    return ("round", *metric_names(), *of_ensembles, *OF_POOLING, FRACTION_AT_FLOOR)


def _directed() -> list[str]:
    """Return the names of the metrics with a direction: higher or lower is better."""
    return [name for name in metric_names() if higher_is_better(name) is not None]


def rounds_to(name: str) -> tuple[str, float] | None:
    """Return the metric and the value of ``rounds-to-METRIC-VALUE``; None for another name.

    Example:
        >>> rounds_to("rounds-to-accuracy-0.5"), rounds_to("rounds-to-nowhere-0.5")
        (('accuracy', 0.5), None)
    """
    match = _ROUNDS_TO.fullmatch(name)
    known = match and match[1] in _directed()
    return (match[1], float(match[2])) if match and known else None


def at_round(name: str) -> tuple[str, int] | None:
    """Return the metric and the round of ``METRIC-at-round-N``; None for another name.

    Example:
        >>> at_round("ensemble-accuracy-at-round-10"), at_round("nowhere-at-round-10")
        (('ensemble-accuracy', 10), None)
    """
    match = _AT_ROUND.fullmatch(name)
    known = match and match[1] in kept_of_rounds() and match[1] != "round"
    return (match[1], int(match[2])) if match and known else None


def curve_of(name: str) -> str:
    """Return the metric on whose learning curve a number lies.

    Example:
        >>> curve_of("accuracy-at-round-10"), curve_of("best-accuracy"), curve_of("accuracy")
        ('accuracy', 'accuracy', 'accuracy')
    """
    found = at_round(name)
    return found[0] if found else name.removeprefix(BEST)


def metric_of(name: str) -> str:
    """Return the metric that a column's number is computed from; other names unchanged.

    Example:
        >>> metric_of("rounds-to-accuracy-0.5"), metric_of("ensemble-accuracy-at-round-10")
        ('accuracy', 'accuracy')
    """
    reached = rounds_to(name)
    return reached[0] if reached else curve_of(of_a_posterior(name).removeprefix(BEFORE_CLOSING))


def number_of_curves(name: str, rounds: Rounds) -> float | None:
    """Return a number of a run's evaluated rounds; None if they do not have it.

    Args:
        name: ``best-METRIC``, the best value over the evaluated rounds, NaN if none is finite;
            ``rounds-to-METRIC-VALUE``, the first evaluated round that reaches the value, infinite
            if none does; ``mean-log-precision-spread`` or ``mean-distance-from-average``, the mean
            over the evaluated rounds; ``fraction-at-scale-floor``, the last evaluated round's;
            ``METRIC-at-round-N``, the metric of the evaluated round N.
        rounds: The evaluated rounds' numbers.

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
    """Return a statistic of the finite values; NaN if none is finite, None without values."""
    values = [entry[name] for entry in rounds if name in entry]
    finite = [value for value in values if math.isfinite(value)]
    return of(finite) if finite else math.nan if values else None
