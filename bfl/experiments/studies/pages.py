"""Texts of a study's table, its report, and sections of pages of results.

The text between a section's markers is generated from the results:

| section | content |
| --- | --- |
| ``<!-- claims STUDY … -->`` | claims of the page's studies, tested together, with a forest plot |
| ``<!-- table STUDY -->`` | a study's table |

STUDY is a folder of a study's results next to the page. A section ends with ``<!-- end -->``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bfl.errors import DataError, RunError
from bfl.experiments.results.environment import ENDED, STARTED, told_of_times
from bfl.experiments.results.figures.style import png
from bfl.experiments.results.report import Drawn, Section, Table, page, svg
from bfl.experiments.results.table import ABSENT, markdown_table
from bfl.experiments.studies.claims import claims, claims_markdown, claims_shown, forest_plot
from bfl.experiments.studies.columns import Column
from bfl.experiments.studies.figures import draw_study
from bfl.experiments.studies.figures.base import drawings
from bfl.experiments.studies.gathering import NO_RESULTS, OpenedStudy, open_study
from bfl.experiments.studies.study import SEED, Study
from bfl.experiments.studies.table import StudyTable, notes_of_origin, study_table
from bfl.files import write_atomically
from bfl.texts import read_text

if TYPE_CHECKING:
    import pandas as pd

# Tables -------------------------------------------------------------------------------------------


def shown(table: StudyTable) -> pd.DataFrame:
    """Return the table as text: each number with its spread, next to the published one."""
    import pandas as pd

    columns: dict[str, Any] = {n: table.frame[n] for n in table.study.label_columns}
    lines = table.frame.to_dict("records")
    columns["runs"] = [f"{line['runs_done']} of {line['runs']}" for line in lines]
    for column in table.study.columns:
        metric, digits = column.metric, column.decimals
        columns[column.heading] = [_ours(line, column) for line in lines]
        if column.published:
            columns[f"{column.heading}, published"] = [
                _number(line[f"{metric}_published"], line[f"{metric}_published_spread"], digits)
                for line in lines
            ]
            columns[f"{column.heading}, difference"] = [
                ABSENT if (d := line[f"{metric}_difference"]) is None else f"{d:+.{digits}f}"
                for line in lines
            ]
    return pd.DataFrame(columns)


def _ours(line: Mapping[str, Any], column: Column) -> str:
    ours, images = line[column.metric], line[f"{column.metric}_by_images"]
    if ours is None:  # a finished run need not have every number
        return ABSENT if line["runs_done"] else str(line["state"])
    text = _number(ours, line[f"{column.metric}_spread"], column.decimals)
    return f"{text} ({images:.{column.decimals}f})" if images else text


def _number(value: float | None, spread: float | None, decimals: int) -> str:
    if value is None:
        return ABSENT
    # With the column's decimals, a small value and its spread would be all zeros.
    small = bool(value) and not float(f"{value:.{decimals}f}")
    text, behind = (
        "" if n is None else f"{n:.1e}" if small and n else f"{n:.{decimals}f}"
        for n in (value, spread)
    )
    return f"{text} ± {behind}" if behind else text


def markdown(table: StudyTable) -> str:
    """Return the table as Markdown, with its title and notes."""
    frame = shown(table)
    text = markdown_table(frame, len(frame.columns) - len(table.study.label_columns))
    return f"# {table.study.title}\n\n{' '.join(table.notes)}\n\n{text}"


def comma_separated(table: StudyTable) -> str:
    """Return the table as CSV: full precision, one column for each number, and the scale."""
    frame = table.frame.drop(columns="state").copy()  # defragmented: pandas warns otherwise
    return str(frame.assign(scale=table.scale).to_csv(index=False))


_SIGNS = {
    "αβγδεηλμρστ": r"\alpha \beta \gamma \delta \varepsilon \eta \lambda \mu \rho \sigma \tau",
    "±→↑√×≈≤·<>−": r"\pm \to \uparrow \surd \times \approx \le \cdot < > -",
    "†‡": r"^\dagger ^\ddagger",
}
_LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {
        sign: f"${command}$"
        for signs, commands in _SIGNS.items()
        for sign, command in zip(signs, commands.split(), strict=True)
    }
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"|": r"\textbar{}", "–": "--", "§": r"\S{}"}
)


def latex(table: StudyTable) -> str:
    """Return the table as LaTeX for the package booktabs, with its notes in the caption."""
    frame = shown(table).map(lambda cell: str(cell).translate(_LATEX))
    frame.columns = frame.columns.map(lambda heading: heading.translate(_LATEX))
    labels = len(table.study.label_columns)
    text = frame.style.hide(axis="index").to_latex(
        hrules=True,
        position_float="centering",
        column_format="l" * labels + "r" * (len(frame.columns) - labels),
        caption=f"{table.study.title}. {' '.join(table.notes)}".translate(_LATEX),
    )
    return str(text)


def by_seed(table: StudyTable) -> str:
    """Return the finished runs as CSV, one line each; see ``StudyTable.by_run``."""
    return str(table.by_run.to_csv(index=False))


def by_client(table: StudyTable) -> str:
    """Return the clients of the finished runs as CSV, one line each; empty if none evaluate."""
    import pandas as pd

    rows = [
        {**run.labels, "client": client, **dict(sorted(numbers.items())), "scale": table.scale}
        for run, result in table.runs
        for client, numbers in result.clients.items()
    ]
    return str(pd.DataFrame(rows, dtype=object).to_csv(index=False)) if rows else ""


FORMATS: dict[str, tuple[str, Callable[[StudyTable], str]]] = {
    "markdown": ("table.md", markdown),
    "csv": ("table.csv", comma_separated),
    "latex": ("table.tex", latex),
    "seeds": ("seeds.csv", by_seed),
    "clients": ("clients.csv", by_client),
}
"""File name and writer by format."""


# Pages --------------------------------------------------------------------------------------------

_SECTION = re.compile(r"(<!-- (claims|table) (\S+(?: \S+)*) -->\n).*?(<!-- end -->)", re.DOTALL)


def rewritten(page: Path) -> tuple[str, pd.DataFrame | None]:
    """Return a page's text with its sections generated again, and its claims if it has any.

    Raises:
        ConfigurationError: A folder holds no study, or results of another one.
        DataError: The page or a result cannot be read, or the page has no section.
    """
    found: pd.DataFrame | None = None

    @cache
    def table_of(name: str) -> StudyTable:
        return study_table(_opened(page, name))

    def written(section: re.Match[str]) -> str:
        nonlocal found
        begin, kind, names, end = section.groups()
        tables = {name: table_of(name) for name in names.split()}
        if kind == "table":
            text = "\n".join(markdown(table).partition("\n\n")[2] for table in tables.values())
            return begin + text + end
        shared = f"{page.stem}-"
        found = claims({n.removeprefix(shared): t for n, t in tables.items()})
        columns = [column for table in tables.values() for column in table.study.columns]
        text = claims_markdown(found, {column.heading: column.decimals for column in columns})
        notes = notes_of_origin([run for table in tables.values() for _, run in table.runs])
        text += "".join(f"\n{note}\n" for note in notes)
        return f"{begin}![Forest plot]({page.stem}.png)\n\n{text}{end}"

    return _SECTION.sub(written, _read(page)), found


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
        folders: Whether the tables and figures in its studies' folders are written as well.

    Raises:
        RunError: A file cannot be written; and the errors of ``rewritten``.
    """
    text, found = rewritten(page)
    try:
        write_atomically(page, text.encode())
        if found is not None:
            write_atomically(page.with_suffix(".png"), png(forest_plot(found)))
    except OSError as error:
        raise RunError(f"cannot write {page}: {error.strerror or error}") from error
    names = {name for section in _SECTION.finditer(text) for name in section[3].split()}
    for study in (_opened(page, name) for name in (names if folders else ())):
        study.folder.write("table.md", markdown(study_table(study)).encode())
        draw_study(study)


def study_report(opened: OpenedStudy) -> str:
    """Return the report of a study's finished runs as one HTML page.

    Raises:
        DataError: No run is done; and the errors of ``study_table``.
    """
    table = study_table(opened)
    if not table.runs:
        raise DataError(f"{opened.folder.path} has no finished run to report")
    figures = [
        Drawn(name, svg(figure, name), caption) for name, figure, caption in drawings(opened)
    ]
    results = [result for _, result in table.runs]
    seeds = dict.fromkeys(str(result.configuration.get(SEED)) for result in results)
    environments = [result.environment for result in results]
    return page(
        title=table.study.title,
        about=[
            f"{len(results)} runs; seeds {', '.join(seeds)}",
            *told_of_times(environments),
        ],
        sections=[
            *_claims(table),
            Section("Table", list(table.notes), tables=[_table("", shown(table))]),
            Section("Figures", figures=figures),
            Section("What was run", tables=list(_origin(table.study, environments))),
        ],
    )


def _origin(study: Study, environments: Sequence[Mapping[str, Any]]) -> Iterator[Table]:
    """Yield the study's base, its axes and rows, and the versions and machines of its runs."""
    base = [{"key": key, "value": str(value)} for key, value in study.base.items()]
    yield Table.of("Base: keys of all runs", base)
    choices = [
        {
            "axis": axis,
            "label": " · ".join(choice.labels.values()),
            "keys": " ".join(f"{key}={value!r}" for key, value in choice.values.items()),
        }
        for axis, among in {**study.axes, "row": study.rows}.items()
        for choice in among
    ]
    yield Table.of("Axes and rows", choices)
    names = dict.fromkeys(name for each in environments for name in each)
    said = {n: dict.fromkeys(str(each[n]) for each in environments if n in each) for n in names}
    kept = [
        {"": name, "value": ", ".join(values)}
        for name, values in said.items()
        if name not in (STARTED, ENDED)
    ]
    yield Table.of("Versions and machines", kept, folded=True)


FOREST = (
    "Difference of each claim's two lines, better − worse, in the column's unit, ours with its "
    "interval over the seeds, and the published one; above 0 is as claimed where higher is better, "
    "below 0 where lower is."
)
"""Caption of the forest plot."""


def _claims(table: StudyTable) -> Iterator[Section]:
    """Yield the section of the study's claims, if its file declares orders."""
    found = claims({table.study.name: table})
    if len(found):
        decimals = {column.heading: column.decimals for column in table.study.columns}
        rows = claims_shown(found, decimals).drop(columns="study")
        plot = Drawn("claims", svg(forest_plot(found), "claims"), FOREST)
        text = "Each claim is an order of two lines. Its test is corrected over all claims here."
        yield Section("Claims", [text], figures=[plot], tables=[_table("Verdicts", rows)])


def _table(caption: str, frame: pd.DataFrame) -> Table:
    return Table.of(caption, frame.astype(object).to_dict("records"))
