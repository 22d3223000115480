"""Sentences about orders, written from results: what a page of results may say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from bfl.errors import DataError, RunError
from bfl.experiments.studies.columns import Column
from bfl.experiments.studies.comparisons import INTERVAL, NOT, TEST, mark
from bfl.experiments.studies.folder import FIGURES, StudyFolder
from bfl.experiments.studies.orders import HOW_SURE, order_entries
from bfl.experiments.studies.paired import Paired
from bfl.experiments.studies.reading import study_in
from bfl.experiments.studies.scale import ScaledStudy
from bfl.experiments.studies.study import Cell
from bfl.experiments.studies.table import Line, StudyTable, study_table
from bfl.files import write_atomically

BEGIN = "<!-- verdicts {name} -->"
END = "<!-- end of verdicts -->"
_SECTION = re.compile(r"<!-- verdicts (\S+) -->\n.*?<!-- end of verdicts -->", re.DOTALL)
_ORDERS = {
    TEST: f"worse, {HOW_SURE[TEST]}",
    INTERVAL: f"worse, {HOW_SURE[INTERVAL]}",
    NOT: "no significant order",
}


def verdicts(table: StudyTable) -> str:
    """Return what the results say of orders, as a Markdown list: an entry a group and column.

    Each line of a group is compared with the one of the best mean, over the seeds that both have;
    and the lines between which the study expects an order with each other. Where runs are missing
    it says of which lines.
    """
    entries = [
        entry
        for lines in _groups(table)
        for number, column in enumerate(table.columns)
        if column.higher_is_better is not None
        for entry in _entry(table, lines, number)
    ]
    entries += order_entries(table.pairing, _of)
    first = " ".join([*table.notes[:2], *_missing(table)])
    return "\n".join([f"{first}\n", *entries]) + "\n"


def _missing(table: StudyTable) -> list[str]:
    """Return a sentence that says which lines have how many runs, if some are missing."""
    if all(line.done == line.runs for line in table.lines) or len(table.lines) < 2:
        return []
    counts = [
        f"{_differing(table, line, line.labels)} {line.done} of {line.runs}" for line in table.lines
    ]
    return [f"By line: {', '.join(counts)}."]


def _groups(table: StudyTable) -> Iterable[list[Line]]:
    groups: dict[tuple[str, ...], list[Line]] = {}
    for line in table.lines:
        shared = (text for name, text in line.labels.items() if name not in table.compared)
        groups.setdefault(tuple(shared), []).append(line)
    return groups.values()


def _entry(table: StudyTable, lines: Sequence[Line], number: int) -> list[str]:
    column = table.columns[number]
    means = [(ours, line) for line in lines if (ours := line.numbers[number].ours) is not None]
    if len(means) < 2:
        return []
    ours, best = (max if column.higher_is_better else min)(means, key=lambda pair: pair[0])
    where = [text for name, text in best.labels.items() if name not in table.compared]
    title = ", ".join([*where, column.heading])
    said: dict[str, list[str]] = {}
    for mean, line in means:
        if line is best:
            continue
        cells = Cell(line.labels), Cell(best.labels)
        paired = table.pairing.compare(*cells, column)
        text = f"{_name(table, line)} {mean:.{column.decimals}f}"
        if not paired.testable:
            said.setdefault("no order without two seeds in common", []).append(text)
        elif table.pairing.same(*cells):
            said.setdefault("the same computation", []).append(text)
        else:
            said.setdefault(_ORDERS[mark(paired)], []).append(f"{text} ({_of(paired, column)})")
    first = f"- {title}: the best mean is that of {_name(table, best)}, {ours:.{column.decimals}f}."
    return [" ".join([first, *(f"{how.capitalize()}: {'; '.join(t)}." for how, t in said.items())])]


def _name(table: StudyTable, line: Line) -> str:
    """Return a line's labels, of those that are compared, in which the lines differ."""
    return _differing(table, line, table.compared)


def _differing(table: StudyTable, line: Line, columns: Iterable[str]) -> str:
    """Return a line's labels in some columns, of those in which the lines of the table differ."""
    labels = {k: v for k, v in line.labels.items() if k in set(columns)}
    differing = [
        text
        for name, text in labels.items()
        if len({each.labels[name] for each in table.lines}) > 1
    ]
    return " ".join(differing or labels.values())


def _of(paired: Paired, column: Column) -> str:
    numbers = (paired.difference, paired.low, paired.high)
    difference, low, high = (f"{number:+.{column.decimals}f}" for number in numbers)
    return f"{difference}, {low} to {high}, {paired.pairs} seeds, p = {paired.p_value:.2g}"


def with_verdicts(page: Path) -> str:
    """Return a page with what stands between its markers written anew.

    The markers are ``<!-- verdicts NAME -->`` and ``<!-- end of verdicts -->``; NAME is the folder
    of a study's results beside the page. Figures of the folder stand below the verdicts.

    Raises:
        ConfigurationError: A folder holds no study, or results of another one.
        DataError: The page or a result cannot be read, or the page has no markers.
    """
    text = _read(page)
    for folder in folders_of(page):
        name = folder.path.relative_to(page.parent).as_posix()
        scaled = study_in(folder)
        written = verdicts(study_table(folder, scaled)) + _figures(folder, scaled, name)
        section = f"{BEGIN.format(name=name)}\n{written}{END}"
        pattern = re.compile(_SECTION.pattern.replace(r"(\S+)", re.escape(name)), re.DOTALL)
        text = pattern.sub(section.replace("\\", r"\\"), text)
    return text


def _figures(folder: StudyFolder, scaled: ScaledStudy, name: str) -> str:
    """Return the figures that the study asks for, as far as they are drawn, as Markdown."""
    drawn = [s for s in scaled.study.figures if (folder.path / FIGURES / f"{s.name}.png").is_file()]
    return "".join(
        f"\n![{spec.title or scaled.study.title}]({name}/{FIGURES}/{spec.name}.png)\n"
        for spec in drawn
    )


def folders_of(page: Path) -> list[StudyFolder]:
    """Return the folders of results of which a page has verdicts.

    Raises:
        DataError: The page cannot be read, or has no markers.
    """
    names = _SECTION.findall(_read(page))
    if not names:
        raise DataError(f"{page} has no section between '{BEGIN.format(name='NAME')}' and '{END}'")
    return [StudyFolder(page.parent / name) for name in names]


def _read(page: Path) -> str:
    try:
        return page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {page}: {error}") from error


def write_verdicts(page: Path) -> None:
    """Write a page's verdicts anew.

    Raises:
        ConfigurationError: See ``with_verdicts``.
        DataError: See ``with_verdicts``.
        RunError: The page cannot be written.
    """
    text = with_verdicts(page)
    try:
        write_atomically(page, text.encode())
    except OSError as error:
        raise RunError(f"cannot write {page}: {error.strerror or error}") from error
