"""Columns and figures that a study's file asks for: numbers of runs, by their names."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pydantic

from bfl.closing.closed import CONFIDENCE, OF_CLOSING, UNFAMILIAR_SHARE
from bfl.errors import unknown_name
from bfl.evaluation import evaluated_ensemble
from bfl.evaluation.metrics import ExampleMetric, higher_is_better, metric_names, metrics
from bfl.evaluation.precision_spread import DISTANCE, SPREAD
from bfl.evaluation.regression import CURVES, ERROR, RANKED_BY
from bfl.evaluation.uncertainty import uncertainties
from bfl.experiments.results import clients
from bfl.experiments.results.summary import BEFORE_CLOSING, OF_FOREIGN, RANDOM
from bfl.experiments.results.table import VALIDATION
from bfl.federation.privacy import EPSILON, EXAMPLE_EPSILON
from bfl.registry import STRICT

if TYPE_CHECKING:
    import pandas as pd

BEST, MEAN, GAIN = "best-", "mean-", "retention-gain-"
"""Prefixes: a metric's best value over rounds, its mean over rounds, a gain by retention."""

OF_POOLING = (SPREAD, DISTANCE)
"""Numbers of pooling that results keep for each round, besides the metrics."""

CHECKED = "names are checked"
"""The key of a validation's context: whether names that are not bfl's are refused."""

_OF_FOREIGN = re.compile(rf"{OF_FOREIGN}.+-(auroc|aupr|fpr95|{UNFAMILIAR_SHARE}|{CONFIDENCE})")


def slug(label: str) -> str:
    """Return a label as a part of a folder name.

    Example:
        >>> slug("MC Dropout"), slug("Dirichlet (α = 0.5)")
        ('mc-dropout', 'dirichlet-0.5')
    """
    return re.sub(r"[^a-z0-9.+]+", "-", label.lower()).strip("-.")


class Column(pydantic.BaseModel):
    """A number of the runs, and its column in the published table.

    Attributes:
        metric: Its name in the runs' ``metrics.json``, or another name of ``docs/studies.md``.
        scale: Factor of a run's number: 100 for percent.
        published: The published table's column; empty: none.
    """

    model_config = STRICT

    metric: str
    title: str = ""
    scale: float = pydantic.Field(1.0, gt=0.0)
    decimals: int = pydantic.Field(3, ge=0, le=12)
    published: str = ""
    published_spread: str = ""

    @pydantic.field_validator("metric")
    @classmethod
    def _is_known(cls, metric: str, info: pydantic.ValidationInfo) -> str:
        known = numbers_of_a_run()
        forms = (rounds_to, at_round, clients.number_of_a_client, _OF_FOREIGN.fullmatch)
        are_checked = (info.context or {}).get(CHECKED, True)
        if metric in known or any(form(metric) for form in forms) or not are_checked:
            return metric
        raise ValueError(
            f"a number of a run, or one of docs/studies.md; {unknown_name('it', metric, known)}"
        )

    @property
    def higher_is_better(self) -> bool | None:
        """True if higher is better; None: neither is."""
        # A number of an ensemble or of a member has the direction of the posterior's number.
        number = evaluated_ensemble.of_a_posterior(self.metric).removeprefix(BEFORE_CLOSING)
        if found := _OF_FOREIGN.fullmatch(number):
            return found[1] not in ("fpr95", CONFIDENCE)
        if number.startswith(GAIN):
            return None if number.endswith(f"-{RANDOM}") else True
        if rounds_to(self.metric):
            return False
        if self.metric.startswith(clients.CLIENTS) or clients.number_of_a_client(self.metric):
            number = next((name for name in metric_names() if number.endswith(name)), number)
        return higher_is_better(curve_of(number))

    @property
    def share_of_examples(self) -> bool:
        """True if the number is a share of the test examples, such as the accuracy."""
        name = curve_of(evaluated_ensemble.of_a_posterior(self.metric))
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


def numbers_of_a_run() -> tuple[str, ...]:
    """Return the names of all numbers that a run may have."""
    retained = [m.name for m in metrics.classes() if issubclass(m, ExampleMetric) and m.retention]
    ranking = [uncertainty.name for uncertainty in uncertainties.classes() if uncertainty.retention]
    of_predictions = (
        *metric_names(),
        *(f"mean-{name}" for name in (*uncertainties.names(), RANKED_BY)),
        *(f"retention-area-{metric}-{by}" for metric in retained for by in ranking),
        *(f"retention-area-{metric}-{RANKED_BY}" for metric in CURVES),
        *(f"{GAIN}{metric}-{by}" for metric in retained for by in (*ranking, RANDOM)),
    )
    return (
        *of_predictions,
        *("degree-of-spread", EPSILON, EXAMPLE_EPSILON),
        *(f"{BEST}{name}" for name in _directed()),
        *(f"{MEAN}{name}" for name in OF_POOLING),
        *clients.names_of_means(),
        *clients.names_of_sets(),
        *OF_CLOSING,
        *(f"{of}{name}" for of in (BEFORE_CLOSING, VALIDATION) for name in metrics.names()),
        *(
            f"{evaluated_ensemble.ENSEMBLE}{name}"
            for name in (*of_predictions, *evaluated_ensemble.names_of_members())
        ),
    )


def numbers_of_rounds() -> tuple[str, ...]:
    """Return the names of the numbers that results keep for each evaluated round."""
    of_ensembles = (f"{evaluated_ensemble.ENSEMBLE}{name}" for name in metrics.names())
    of_validation = (f"{VALIDATION}{name}" for name in metric_names())
    return (*metric_names(), *of_ensembles, *of_validation, *OF_POOLING)


def _directed() -> list[str]:
    return [name for name in metric_names() if higher_is_better(name) is not None]


def rounds_to(name: str) -> tuple[str, float] | None:
    """Return the metric and the value of ``rounds-to-METRIC-VALUE``; None for another name."""
    match = re.fullmatch(r"rounds-to-([a-z-]+)-([0-9]+(?:\.[0-9]+)?)", name)
    return (match[1], float(match[2])) if match and match[1] in _directed() else None


def at_round(name: str) -> tuple[str, int] | None:
    """Return the metric and the round of ``METRIC-at-round-N``; None for another name."""
    match = re.fullmatch(r"([a-z-]+)-at-round-([1-9][0-9]*)", name)
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

    def of(metric: str) -> pd.DataFrame:
        return curves[curves.metric == metric]

    if reached := rounds_to(name):
        found = of(reached[0])
        sign = 1.0 if higher_is_better(reached[0]) else -1.0
        there = found[sign * found.value >= sign * reached[1]]
        return there.groupby("run")["round"].min().reindex(found.run.unique(), fill_value=math.inf)
    if at := at_round(name):
        found = of(at[0])
        return found[found["round"] == at[1]].set_index("run").value
    best, mean = name.removeprefix(BEST), name.removeprefix(MEAN)
    if (best != name and higher_is_better(best) is not None) or (
        mean != name and mean in OF_POOLING
    ):
        found = of(best if best != name else mean)
        finite = found.value.where(np.isfinite(found.value)).groupby(found.run, sort=False)
        if best == name:
            return finite.agg(lambda v: math.fsum(v.dropna()) / v.count() if v.count() else np.nan)
        return finite.max() if higher_is_better(best) else finite.min()
    found = of(name)
    last = found.groupby("run", sort=False)["round"].idxmax()
    return found.loc[last].set_index("run").value


KINDS = {
    "learning-curves": "Accuracy, or error, after each evaluated round, by row",
    "retention-curves": "Accuracy against the share of the test data that is retained, by row",
    "numbers": "Means of one or several numbers, with their spread and each seed's value",
    "client-numbers": "A number of each client, as mean and spread over the seeds",
}
"""Kinds of figures, with what they show.

References:
    Learning curves: Fischer et al. (2024), Figs. 3, 5, 8 and 9; Chen and Chao (2021), Fig. 3, with
    the ensemble. Retention curves: Fischer et al. (2024), Figs. 2, 4, 6 and 7; Filos et al. (2019).
    Numbers: Cleveland (1984), "Graphical methods for data presentation", on dot charts. Clients'
    numbers: Yang et al. (2023), Tables 2 and 3.
"""


def _each(given: Any) -> Any:
    return [given] if isinstance(given, str | Mapping) else given


Labels = Annotated[list[str], pydantic.BeforeValidator(_each), pydantic.Field(min_length=1)]


class Figure(pydantic.BaseModel):
    """A study's figure, a table ``[[figures]]``; what is behind ``rows`` belongs to some kinds.

    Attributes:
        rows: Allowed labels by column: a row that matches one of them is shown; empty: all rows.
        metric: Of clients' numbers.
        metrics: Of numbers.
        by: The uncertainties of retention curves, a line of panels each.
        ensemble: Whether learning curves have a thin line for the ensemble besides the posterior's.
    """

    model_config = STRICT

    name: Annotated[str, pydantic.AfterValidator(slug)]
    kind: Literal["learning-curves", "retention-curves", "numbers", "client-numbers"]
    title: str = ""
    rows: Annotated[list[dict[str, Labels]], pydantic.BeforeValidator(_each)] = []
    metric: str = "global-accuracy"
    metrics: list[str] = pydantic.Field(["accuracy"], min_length=1, max_length=6)
    by: list[str] = pydantic.Field(["predictive-entropy", "aleatoric", "epistemic"], min_length=1)
    ensemble: bool = False

    def shows(self, labels: Mapping[str, str]) -> bool:
        """Return whether the figure shows a row with these labels."""
        return not self.rows or any(
            all(labels.get(column) in allowed for column, allowed in choice.items())
            for choice in self.rows
        )


def default_figures(base: Mapping[str, Any]) -> list[Figure]:
    """Return a figure of each kind; for regression, of its error."""
    kinds = [Figure.model_validate({"name": kind, "kind": kind}) for kind in KINDS]
    if base.get("task") != "regression":
        return kinds
    changed = {"metric": f"global-{ERROR}", "metrics": [ERROR]}
    return [kind.model_copy(update=changed) for kind in kinds]
