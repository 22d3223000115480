"""Pages of a study: its report, and sections of pages of results.

Between ``<!-- claims STUDY … -->`` or ``<!-- table STUDY -->`` and ``<!-- end -->`` stand claims of
studies with a forest plot, or a study's table; STUDY is a folder of results next to the page.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from bfl.errors import DataError, RunError
from bfl.experiments.results.environment import describe_times
from bfl.experiments.results.figures.style import png
from bfl.experiments.results.report import Drawn, Section, Table, page, svg
from bfl.experiments.studies.claims import (
    claims,
    claims_as_text,
    claims_markdown,
    forest_plot,
    reasons_of_open,
)
from bfl.experiments.studies.figures import draw_study, drawings
from bfl.experiments.studies.results import NO_RESULTS, VERSIONS, OpenedStudy, open_study
from bfl.experiments.studies.study import SEED
from bfl.experiments.studies.table import (
    StudyTable,
    as_text,
    markdown,
    notes_of_origin,
    study_table,
)
from bfl.files import write_atomically
from bfl.texts import read_text

if TYPE_CHECKING:
    import pandas as pd

_SECTION = re.compile(r"(<!-- (claims|table) (\S+(?: \S+)*) -->\n).*?(<!-- end -->)", re.DOTALL)


def rewritten(path: Path) -> tuple[str, pd.DataFrame | None]:
    """Return a page's text with its sections generated again, and its claims if it has any.

    Raises:
        DataError: The page or a result cannot be read, or the page has no section.
    """
    found: pd.DataFrame | None = None
    try:
        page = read_text(path)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    if not _SECTION.search(page):
        raise DataError(f"{path} has no section between '<!-- claims STUDY -->' and '<!-- end -->'")

    @cache
    def table_of(name: str) -> StudyTable:
        return study_table(open_study(path.parent / name, results=[Path(NO_RESULTS)]))

    def written(section: re.Match[str]) -> str:
        nonlocal found
        begin, kind, names, end = section.groups()
        tables = {name: table_of(name) for name in names.split()}
        if kind == "table":
            text = "\n".join(markdown(table).partition("\n\n")[2] for table in tables.values())
            return begin + text + end
        found = claims({n.removeprefix(f"{path.stem}-"): t for n, t in tables.items()})
        text = claims_markdown(found, _decimals(*tables.values()))
        notes = notes_of_origin([table.results for table in tables.values()])
        text += "".join(f"\n{note}\n" for note in notes)
        return f"{begin}![Forest plot]({path.stem}.png)\n\n{text}{end}"

    return _SECTION.sub(written, page), found


def _decimals(*tables: StudyTable) -> dict[str, int]:
    return {column.heading: column.decimals for table in tables for column in table.study.columns}


def rewrite(path: Path, *, folders: bool) -> None:
    """Write a page's sections anew, and its forest plot next to it; see ``rewritten``.

    With ``folders`` the tables and figures in its studies' folders are written as well.
    """
    text, found = rewritten(path)
    try:
        write_atomically(path, text.encode())
        if found is not None:
            write_atomically(path.with_suffix(".png"), png(forest_plot(found)))
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error
    names = {name for section in _SECTION.finditer(text) for name in section[3].split()}
    for name in names if folders else ():
        study = open_study(path.parent / name, results=[Path(NO_RESULTS)])
        study.folder.write("table.md", markdown(study_table(study)).encode())
        draw_study(study)


def with_claims(table: StudyTable) -> str:
    """Return a study's table and, if it has any, its claims as Markdown."""
    if not table.study.claims:
        return markdown(table)
    found = claims({table.study.name: table})
    return f"{markdown(table)}\n## Claims\n\n{claims_markdown(found, _decimals(table))}"


def study_report(opened: OpenedStudy) -> str:
    """Return the report of a study's finished runs as one HTML page; DataError for no run."""
    table = study_table(opened)
    study, frame = table.study, table.results.frame
    if not len(frame):
        raise DataError(f"{opened.folder.path} has no finished run to report")
    sections = []
    tested = claims({study.name: table})
    if len(tested):
        rows = claims_as_text(tested).drop(columns="study")
        caption = (
            "Difference of each claim's two lines, better − worse, in the column's unit, ours with "
            "its interval over the seeds, and the published one; above 0 is as claimed where "
            "higher is better, below 0 where lower is."
        )
        plot = Drawn("claims", svg(forest_plot(tested), "claims"), caption)
        text = "Each claim is an order of two lines, tested together with all claims here."
        texts = [text, *reasons_of_open(tested)]
        sections += [
            Section(
                "Claims",
                texts,
                figures=[plot],
                tables=[Table.of("Verdicts", rows.to_dict("records"))],
            )
        ]
    figures = [
        Drawn(name, svg(figure, name), caption) for name, figure, caption in drawings(opened)
    ]
    sections += [
        Section(
            "Table",
            list(table.notes),
            tables=[Table.of("", as_text(table, three_digits=True).to_dict("records"))],
        ),
        Section("Figures", figures=figures),
    ]
    base = [{"key": key, "value": str(value)} for key, value in study.base.items()]
    choices = [
        {
            "axis": axis,
            "label": " · ".join(choice.labels.values()),
            "keys": " ".join(f"{key}={value!r}" for key, value in choice.values.items()),
        }
        for axis, among in {**study.axes, "row": study.rows}.items()
        for choice in among
    ]
    kept = [
        {"": name, "value": ", ".join(dict.fromkeys(frame[name]))}
        for name in VERSIONS
        if name in frame
    ]
    origin = [
        Table.of("Base: keys of all runs", base),
        Table.of("Axes and rows", choices),
        Table.of("Versions and machines", kept, folded=True),
    ]
    sections += [Section("What was run", tables=origin)]
    seeds = frame[SEED].unique() if SEED in frame else [str(study.base.get(SEED, 0))]
    times = describe_times(frame.to_dict("records"))
    about = [f"{len(frame)} runs; seeds {', '.join(seeds)}", *times]
    return page(title=study.title, about=about, sections=sections)
