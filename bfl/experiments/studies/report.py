"""A study's report: one HTML file with its claims, tables and figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bfl.errors import DataError
from bfl.experiments.results.report import Drawn, Section, Table, page, svg
from bfl.experiments.studies.claims import claims, claims_shown, forest_plot
from bfl.experiments.studies.figures.base import drawings
from bfl.experiments.studies.formats import shown
from bfl.experiments.studies.gathering import OpenedStudy
from bfl.experiments.studies.table import StudyTable, study_table

if TYPE_CHECKING:
    import pandas as pd


def study_report(opened: OpenedStudy) -> str:
    """Return the report of a study, as far as its runs are done, as one HTML page.

    Raises:
        DataError: No run is done; and the errors of ``study_table``.
    """
    table = study_table(opened)
    if not table.runs:
        raise DataError(f"{opened.folder.path} has no finished run to report")
    figures = [
        Drawn(name, svg(figure, name), name.replace("-", " ")) for name, figure in drawings(opened)
    ]
    return page(
        title=table.study.title,
        about=[f"{len(table.runs)} runs"],
        sections=[
            *_claims(table),
            Section("Table", list(table.notes), tables=[_table("", shown(table))]),
            Section("Figures", figures=figures),
        ],
    )


def _claims(table: StudyTable) -> Iterator[Section]:
    """Yield the section of the orders that the study's file declares, if it does."""
    found = claims({table.study.name: table})
    if len(found):
        decimals = {column.heading: column.decimals for column in table.study.columns}
        rows = claims_shown(found, decimals).drop(columns="study")
        plot = Drawn("claims", svg(forest_plot(found), "claims"), "Differences, ours and published")
        text = "Each claim is an order of two lines. Its test is corrected over all claims here."
        yield Section("Claims", [text], figures=[plot], tables=[_table("Verdicts", rows)])


def _table(caption: str, frame: pd.DataFrame) -> Table:
    return Table.of(caption, frame.astype(object).to_dict("records"))
