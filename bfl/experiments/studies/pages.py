"""A study's report, one HTML file; and pages of results, whose sections are written anew.

What stands between a section's markers is written from the results:

| section | content |
| --- | --- |
| ``<!-- claims STUDY … -->`` | claims of a page's studies, tested together, and their forest plot |
| ``<!-- table STUDY -->`` | a study's table |

STUDY is the folder of a study's results next to the page. A section ends with ``<!-- end -->``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bfl.errors import DataError, RunError
from bfl.experiments.results.figures.base import png
from bfl.experiments.results.report import Drawn, Section, Table, page, svg
from bfl.experiments.studies.claims import claims, claims_markdown, claims_shown, forest_plot
from bfl.experiments.studies.figures import draw_study
from bfl.experiments.studies.figures.base import drawings
from bfl.experiments.studies.formats import markdown, shown
from bfl.experiments.studies.gathering import OpenedStudy
from bfl.experiments.studies.opening import NO_RESULTS, open_study
from bfl.experiments.studies.table import StudyTable, notes_of_origin, study_table
from bfl.files import write_atomically
from bfl.texts import read_text

if TYPE_CHECKING:
    import pandas as pd

_SECTION = re.compile(r"(<!-- (claims|table) (\S+(?: \S+)*) -->\n).*?(<!-- end -->)", re.DOTALL)


def rewritten(page: Path) -> tuple[str, bytes | None]:
    """Return a page's text with its sections written anew, and its forest plot if it has claims.

    Raises:
        ConfigurationError: A folder holds no study, or results of another one.
        DataError: The page or a result cannot be read, or the page has no section.
    """
    plot: bytes | None = None

    def written(section: re.Match[str]) -> str:
        nonlocal plot
        begin, kind, names, end = section.groups()
        tables = {name: study_table(_opened(page, name)) for name in names.split()}
        if kind == "table":
            text = "\n".join(markdown(table).partition("\n\n")[2] for table in tables.values())
            return begin + text + end
        shared = f"{page.stem}-"
        found = claims({n.removeprefix(shared): t for n, t in tables.items()})
        plot = png(forest_plot(found))
        columns = [column for table in tables.values() for column in table.study.columns]
        text = claims_markdown(found, {column.heading: column.decimals for column in columns})
        notes = notes_of_origin([run for table in tables.values() for _, run in table.runs])
        text += "".join(f"\n{note}\n" for note in notes)
        return f"{begin}![Forest plot]({page.stem}.png)\n\n{text}{end}"

    return _SECTION.sub(written, _read(page)), plot


def _opened(page: Path, name: str) -> OpenedStudy:
    return open_study(page.parent / name, results=[Path(NO_RESULTS)])


def _read(page: Path) -> str:
    try:
        text = read_text(page)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {page}: {error}") from error
    if not _SECTION.search(text):
        raise DataError(f"{page} has no section between '<!-- claims STUDY -->' and '<!-- end -->'")
    return text


def rewrite(page: Path, *, folders: bool) -> None:
    """Write a page's sections anew, and its forest plot next to it; see ``rewritten``.

    Args:
        page: The page.
        folders: Whether the tables and figures in its studies' folders are written as well.

    Raises:
        RunError: A file cannot be written; and the errors of ``rewritten``.
    """
    text, plot = rewritten(page)
    try:
        write_atomically(page, text.encode())
        if plot is not None:
            write_atomically(page.with_suffix(".png"), plot)
    except OSError as error:
        raise RunError(f"cannot write {page}: {error.strerror or error}") from error
    names = {name for section in _SECTION.finditer(text) for name in section[3].split()}
    for study in (_opened(page, name) for name in (names if folders else ())):
        study.folder.write("table.md", markdown(study_table(study)).encode())
        draw_study(study)


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
