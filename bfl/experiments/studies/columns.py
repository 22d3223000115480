"""Columns of a study's tables: numbers of the runs, in the units of the published table."""

from __future__ import annotations

import re

import pydantic
from pydantic import Field, field_validator

from bfl.errors import unknown_name
from bfl.evaluation.metrics import ExampleMetric, metrics
from bfl.evaluation.predictives.evaluated import ENSEMBLE, names_of_members, of_a_posterior
from bfl.evaluation.uncertainty import uncertainties
from bfl.experiments.results.evaluated_clients import (
    CLIENTS,
    names_of_means,
    names_of_sets,
    number_of_a_client,
)
from bfl.experiments.results.foreign import BEFORE_CLOSING, OF_FOREIGN
from bfl.experiments.results.summary import RANDOM
from bfl.experiments.studies.curves import (
    AT_ROUND_FORM,
    ROUNDS_TO_FORM,
    at_round,
    curve_of,
    names_of_curves,
    rounds_to,
)
from bfl.experiments.studies.run_result import GAIN
from bfl.federation.privacy.accountant import EPSILON, EXAMPLE_EPSILON
from bfl.registry import STRICT

_OF_FOREIGN = re.compile(rf"{OF_FOREIGN}.+-(auroc|aupr|fpr95)")


class Column(pydantic.BaseModel):
    """One number of the runs, and where the published table has it.

    Attributes:
        metric: Its name in the runs' ``metrics.json``.
        title: The column's heading; by default the metric's name.
        scale: What a run's number is multiplied by: 100 for percent.
        decimals: How many decimals are shown.
        published: The published table's column; empty: it has none.
        published_spread: The published table's column of the spread; empty: it has none.
        published_spread_scale: What the published spread is multiplied by to have the unit of the
            published value.
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
        formed = (
            rounds_to(metric)
            or at_round(metric)
            or number_of_a_client(metric)
            or _OF_FOREIGN.fullmatch(metric)
        )
        if metric not in known and not formed:
            raise ValueError(
                f"{unknown_name('metric', metric, known)}; or {ROUNDS_TO_FORM}; or "
                f"{AT_ROUND_FORM}; or client-K-NAME, such as client-0-best-better-accuracy; or "
                "ood-SOURCE-auroc, ood-SOURCE-UNCERTAINTY-auroc, or aupr or fpr95 in its place"
            )
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
        for metric in metrics.classes():
            of_clients = self._of_clients and self.metric.endswith(metric.name)
            area = f"retention-area-{metric.name}-"
            if curve_of(number) == metric.name or of_clients or number.startswith(area):
                return metric.higher_is_better
        return None

    @property
    def _of_clients(self) -> bool:
        return self.metric.startswith(CLIENTS) or number_of_a_client(self.metric) is not None

    @property
    def heading(self) -> str:
        """Heading of the column."""
        return self.title or self.metric


def numbers_of_a_run() -> tuple[str, ...]:
    """Return the names of all numbers that a run may have."""
    retained = [m.name for m in metrics.classes() if issubclass(m, ExampleMetric) and m.retention]
    ranking = [u.name for u in uncertainties.classes() if u.retention]
    of_predictions = (
        *metrics.names(),
        *(f"mean-{name}" for name in uncertainties.names()),
        *(f"retention-area-{metric}-{by}" for metric in retained for by in ranking),
        *(f"{GAIN}{metric}-{by}" for metric in retained for by in (*ranking, RANDOM)),
    )
    return (
        *of_predictions,
        "degree-of-spread",
        EPSILON,
        EXAMPLE_EPSILON,
        *names_of_curves(),
        *names_of_means(),
        *names_of_sets(),
        *(f"{BEFORE_CLOSING}{name}" for name in metrics.names()),
        *(f"{ENSEMBLE}{name}" for name in (*of_predictions, *names_of_members())),
    )


def default_columns() -> list[Column]:
    """Return what a table shows unless the study says: accuracy in percent, and the NLL."""
    return [
        Column(metric="accuracy", title="accuracy (%)", scale=100.0, decimals=2),
        Column(metric="negative-log-likelihood", title="NLL", decimals=3),
    ]
