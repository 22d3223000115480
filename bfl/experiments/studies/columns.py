"""Columns and figures that a study's file asks for: numbers of runs, by their names."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pydantic
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo

from bfl.aggregation.precision_spread import DISTANCE, SPREAD
from bfl.closing.closed import CONFIDENCE, OF_CLOSING, UNFAMILIAR_SHARE
from bfl.errors import nearest, unknown_name
from bfl.evaluation.evaluated_ensemble import ENSEMBLE, names_of_members, of_a_posterior
from bfl.evaluation.metrics import ExampleMetric, higher_is_better, metric_names, metrics
from bfl.evaluation.regression import CURVES, ERROR, RANKED_BY
from bfl.evaluation.uncertainty import uncertainties
from bfl.experiments.results.clients import (
    CLIENTS,
    names_of_means,
    names_of_sets,
    number_of_a_client,
)
from bfl.experiments.results.monitoring import VALIDATION
from bfl.experiments.results.summary import BEFORE_CLOSING, OF_FOREIGN, RANDOM
from bfl.federation.privacy import EPSILON, EXAMPLE_EPSILON
from bfl.posteriors.posterior import FRACTION_AT_FLOOR
from bfl.registry import STRICT

if TYPE_CHECKING:
    import pandas as pd

BEST, MEAN, GAIN = "best-", "mean-", "retention-gain-"
"""Prefixes: a metric's best value over rounds, its mean over rounds, a gain by retention."""

OF_POOLING = (SPREAD, DISTANCE)
"""Numbers of pooling that results keep for each round, besides the metrics."""

CHECKED = "names are checked"
"""The key of a validation's context: whether names that are not bfl's are refused."""

_ROUNDS_TO = re.compile(r"rounds-to-([a-z-]+)-([0-9]+(?:\.[0-9]+)?)")
_AT_ROUND = re.compile(r"([a-z-]+)-at-round-([1-9][0-9]*)")
_OF_FOREIGN = re.compile(rf"{OF_FOREIGN}.+-(auroc|aupr|fpr95|{UNFAMILIAR_SHARE}|{CONFIDENCE})")


class Column(BaseModel):
    """A number of the runs, and its column in the published table.

    Attributes:
        metric: Its name in the runs' ``metrics.json``, or another name of ``docs/studies.md``.
        scale: Factor of a run's number: 100 for percent.
        published: The published table's column; empty: none.
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

    @pydantic.field_validator("metric")
    @classmethod
    def _is_known(cls, metric: str, info: ValidationInfo) -> str:
        known = numbers_of_a_run()
        forms = (rounds_to, at_round, number_of_a_client, _OF_FOREIGN.fullmatch)
        if metric in known or any(form(metric) for form in forms) or not _checked(info):
            return metric
        initials = {"".join(word[0] for word in name.split("-") if word): name for name in known}
        guess = initials.get(metric.lower()) or nearest(metric, known)
        hint = f"'{guess}' (did you mean that?), or " if guess else ""
        raise ValueError(
            f"{hint}a number of metrics.json, as `bfl glossary` has; or rounds-to-METRIC-VALUE, "
            "such as rounds-to-accuracy-0.5; or METRIC-at-round-N; or client-K-NAME, such as "
            "client-0-best-better-accuracy; or ood-SOURCE-auroc, ood-SOURCE-UNCERTAINTY-auroc, or "
            "aupr or fpr95 in its place"
        )

    @property
    def higher_is_better(self) -> bool | None:
        """True if higher is better; None: neither is."""
        # A number of an ensemble or of a member has the direction of the posterior's number.
        number = of_a_posterior(self.metric).removeprefix(BEFORE_CLOSING)
        if found := _OF_FOREIGN.fullmatch(number):
            return found[1] not in ("fpr95", CONFIDENCE)
        if number.startswith(GAIN):
            return None if number.endswith(f"-{RANDOM}") else True
        if rounds_to(self.metric):
            return False
        if self.metric.startswith(CLIENTS) or number_of_a_client(self.metric):
            number = next((name for name in metric_names() if number.endswith(name)), number)
        return higher_is_better(curve_of(number))

    @property
    def share_of_examples(self) -> bool:
        """True if the number is a share of the test examples, such as the accuracy."""
        name = curve_of(of_a_posterior(self.metric))
        return name in metrics.names() and metrics.get(name).share_of_examples

    @property
    def heading(self) -> str:
        """The column's heading."""
        return self.title or self.metric


def default_columns(base: Mapping[str, Any]) -> list[Column]:
    """Return the default columns: accuracy in percent or, for regression, the error; the NLL."""
    first = Column(metric="accuracy", title="accuracy (%)", scale=100.0, decimals=2)
    if base.get("task") == "regression":
        first = Column(metric=ERROR, title="RMSE")
    return [first, Column(metric="negative-log-likelihood", title="NLL")]


def _checked(info: ValidationInfo) -> bool:
    return bool((info.context or {}).get(CHECKED, True))


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
        *OF_CLOSING,
        *(f"{BEFORE_CLOSING}{name}" for name in metrics.names()),
        *(f"{ENSEMBLE}{name}" for name in (*of_predictions, *names_of_members())),
    )


def numbers_of_rounds() -> tuple[str, ...]:
    """Return the names of the numbers that results keep for each evaluated round."""
    of_ensembles = (f"{ENSEMBLE}{name}" for name in metrics.names())
    of_validation = (f"{VALIDATION}{name}" for name in metric_names())
    return (*metric_names(), *of_ensembles, *of_validation, *OF_POOLING, FRACTION_AT_FLOOR)


def _directed() -> list[str]:
    """Return the names of the metrics with a direction: higher or lower is better."""
    return [name for name in metric_names() if higher_is_better(name) is not None]


def rounds_to(name: str) -> tuple[str, float] | None:
    """Return the metric and the value of ``rounds-to-METRIC-VALUE``; None for another name."""
    match = _ROUNDS_TO.fullmatch(name)
    return (match[1], float(match[2])) if match and match[1] in _directed() else None


def at_round(name: str) -> tuple[str, int] | None:
    """Return the metric and the round of ``METRIC-at-round-N``; None for another name."""
    match = _AT_ROUND.fullmatch(name)
    return (match[1], int(match[2])) if match and match[1] in numbers_of_rounds() else None


def curve_of(name: str) -> str:
    """Return the metric of ``best-METRIC`` or ``METRIC-at-round-N``, or the name itself."""
    found = at_round(name)
    return found[0] if found else name.removeprefix(BEST)


def retained_at(metric: str, by: str, percent: int) -> str:
    """Return the name of a metric of the least uncertain examples, in percent of all."""
    return f"{metric}-retaining-{percent}-by-{by}"


def numbers_of_curves(name: str, curves: pd.DataFrame) -> pd.Series[float]:
    """Return a number of evaluated rounds, by run, of the runs that have it.

    Args:
        name: ``best-METRIC``, the best value, NaN if none is finite; ``rounds-to-METRIC-VALUE``,
            the first round that reaches the value, infinite if none does; ``METRIC-at-round-N``;
            ``mean-NAME`` of a number of pooling; any other name: the last value.
        curves: Run, round, metric and value.

    Source:
        Yang et al. (2023), HBFL, Table 1, has the best round's accuracy.
    """
    best, mean = name.removeprefix(BEST), name.removeprefix(MEAN)
    is_best = best != name and higher_is_better(best) is not None
    is_mean = mean != name and mean in OF_POOLING
    reached, at = rounds_to(name), at_round(name)
    metric = reached[0] if reached else at[0] if at else best if is_best else name
    found = curves[curves.metric == (mean if is_mean else metric)]
    if reached:
        sign = 1.0 if higher_is_better(metric) else -1.0
        there = found[sign * found.value >= sign * reached[1]]
        return there.groupby("run")["round"].min().reindex(found.run.unique(), fill_value=math.inf)
    if at:
        return found[found["round"] == at[1]].set_index("run").value
    finite = found.value.where(np.isfinite(found.value)).groupby(found.run, sort=False)
    if is_best:
        return finite.max() if higher_is_better(best) else finite.min()
    if is_mean:
        return finite.agg(lambda of: math.fsum(of.dropna()) / of.count() if of.count() else np.nan)
    last = found.groupby("run", sort=False)["round"].idxmax()
    return found.loc[last].set_index("run").value


def _each(given: Any) -> Any:
    """Return a list; a single label or table becomes a list of one."""
    return [given] if isinstance(given, str | Mapping) else given


Labels = Annotated[list[str], BeforeValidator(_each), Field(min_length=1)]
"""Labels of a column; a file may give a single one without a list."""


def _one_of(what: str, known: Callable[[], Sequence[str]]) -> AfterValidator:
    """Return a check that a name is empty or known at the time of the check."""

    def check(name: str, info: ValidationInfo) -> str:
        if name and _checked(info) and name not in (names := known()):
            raise ValueError(unknown_name(what, name, names))
        return name

    return AfterValidator(check)


Metric = Annotated[str, Field(min_length=1), _one_of("metric", metric_names)]
Uncertainty = Annotated[
    str,
    Field(min_length=1),
    _one_of("uncertainty", lambda: [u.name for u in uncertainties.classes() if u.retention]),
]
ClientNumber = Annotated[
    str,
    Field(min_length=1),
    _one_of("number of a client", lambda: [n.removeprefix(CLIENTS) for n in names_of_means()]),
]


class FigureSpec(BaseModel):
    """A study's figure, a table ``[[figures]]``; further keys are the kind's.

    ``rows`` are allowed labels by column: a row that matches one of them is shown; empty: all rows.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[
        str, AfterValidator(lambda name: re.sub(r"[^a-z0-9.+]+", "-", name.lower()).strip("-."))
    ]
    title: str = ""
    rows: Annotated[list[dict[str, Labels]], BeforeValidator(_each)] = Field(default_factory=list)

    def shows(self, labels: Mapping[str, str]) -> bool:
        """Return whether the figure shows a row with these labels."""
        return not self.rows or any(
            all(labels.get(column) in allowed for column, allowed in choice.items())
            for choice in self.rows
        )


class LearningCurves(FigureSpec):
    """A metric on the test data after each evaluated round, by row, in a panel for each partition.

    With ``ensemble`` a thin line shows the metric of the ensemble that is evaluated besides the
    posterior.

    Reference:
        Fischer et al. (2024), Figs. 3, 5, 8 and 9; Chen and Chao (2021), Fig. 3, with ``ensemble``.
    """

    kind: Literal["learning-curves"] = "learning-curves"
    metric: Metric = "accuracy"
    ensemble: bool = False


class RetentionCurves(FigureSpec):
    """Accuracy against the share of the test data that is retained, by row.

    There is a line of panels for each uncertainty, and a column for each partition. A curve that
    rises from right to left shows that the uncertainty identifies errors.

    Reference:
        Fischer et al. (2024), Figs. 2, 4, 6 and 7; Filos et al. (2019).
    """

    kind: Literal["retention-curves"] = "retention-curves"
    by: list[Uncertainty] = Field(
        default_factory=lambda: ["predictive-entropy", "aleatoric", "epistemic"], min_length=1
    )


class Numbers(FigureSpec):
    """Means of one or several numbers, with their spread and each seed's value.

    There is a line for each row, in a panel for each partition.

    Reference:
        Cleveland (1984), "Graphical methods for data presentation", on dot charts.
    """

    kind: Literal["numbers"] = "numbers"
    metrics: list[Annotated[str, Field(min_length=1), _one_of("number", numbers_of_a_run)]] = Field(
        default_factory=lambda: ["accuracy"], min_length=1, max_length=6
    )


class ClientNumbers(FigureSpec):
    """A number of each client, as mean and spread over the seeds, and a line at the clients' mean.

    If a row's clients do not have the number, the legend says so.

    Reference:
        Yang et al. (2023), Tables 2 and 3: each client's best accuracy.
    """

    kind: Literal["client-numbers"] = "client-numbers"
    metric: ClientNumber = "global-accuracy"


Figure = Annotated[
    LearningCurves | RetentionCurves | Numbers | ClientNumbers, Field(discriminator="kind")
]


def default_figures(base: Mapping[str, Any]) -> list[Figure]:
    """Return a figure of each kind; for regression, of its error."""
    if base.get("task") == "regression":
        return [
            LearningCurves(name="learning-curves", metric=ERROR),
            Numbers(name="numbers", metrics=[ERROR]),
            ClientNumbers(name="client-numbers", metric=f"global-{ERROR}"),
        ]
    kinds = (ClientNumbers, LearningCurves, Numbers, RetentionCurves)
    return [kind(name=kind.model_fields["kind"].default) for kind in kinds]
