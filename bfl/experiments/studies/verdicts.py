"""Sentences about orders, written from results: what a page of results may say."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from bfl.errors import DataError, RunError
from bfl.experiments.studies.columns import Column
from bfl.experiments.studies.comparisons import mark
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.paired import Paired
from bfl.experiments.studies.reading import study_in
from bfl.experiments.studies.study import Cell
from bfl.experiments.studies.table import Line, StudyTable, study_table
from bfl.files import write_atomically

BEGIN = "<!-- verdicts {name} -->"
END = "<!-- end of verdicts -->"
_SECTION = re.compile(r"<!-- verdicts (\S+) -->\n.*?<!-- end of verdicts -->", re.DOTALL)
_ORDERS = {
    "test": "worse, by interval and exact test",
    "interval": "worse, by the interval (too few seeds for the exact test, or it does not reject)",
    "not significant": "no significant order",
}


def verdicts(table: StudyTable) -> str:
    """Return what the results say of orders, as a Markdown list: an entry a group and column.

    Each line of a group is compared with the one of the best mean, over the seeds that both have.
    """
    entries = [
        entry
        for lines in _groups(table)
        for number, column in enumerate(table.columns)
        if column.higher_is_better is not None
        for entry in _entry(table, lines, number)
    ]
    return "\n".join([f"{' '.join(table.notes[:2])}\n", *entries]) + "\n"


def _groups(table: StudyTable) -> Iterable[list[Line]]:
    groups: dict[tuple[str, ...], list[Line]] = {}
    for line in table.lines:
        shared = (text for name, text in line.labels.items() if name not in table.compared)
        groups.setdefault(tuple(shared), []).append(line)
    return groups.values()


def _entry(table: StudyTable, lines: Sequence[Line], number: int) -> list[str]:
    column = table.columns[number]
    means = [(ours, line) for line in lines if (ours := line.numbers[number].ours) is not None]
    finite = [pair for pair in means if math.isfinite(pair[0])]
    if len(means) < 2 or not finite:
        return []
    ours, best = (max if column.higher_is_better else min)(finite, key=lambda pair: pair[0])
    where = [text for name, text in best.labels.items() if name not in table.compared]
    title = ", ".join([*where, column.heading])
    said: dict[str, list[str]] = {}
    for mean, line in means:
        if line is best:
            continue
        cells = Cell(line.labels), Cell(best.labels)
        paired = table.pairing.compare(*cells, column)
        text = f"{_name(table, line)} {mean:.{column.decimals}f}"
        if not math.isfinite(mean):
            said.setdefault("not reached, or not finite, in a run", []).append(_name(table, line))
        elif not paired.testable:
            said.setdefault("no order without two seeds in common", []).append(text)
        elif table.pairing.same(*cells):
            said.setdefault("the same computation", []).append(text)
        else:
            said.setdefault(_ORDERS[mark(paired)], []).append(f"{text} ({_of(paired, column)})")
    first = f"- {title}: the best mean is that of {_name(table, best)}, {ours:.{column.decimals}f}."
    return [" ".join([first, *(f"{how.capitalize()}: {'; '.join(t)}." for how, t in said.items())])]


def _name(table: StudyTable, line: Line) -> str:
    """Return a line's labels in which the lines of the table differ."""
    labels = {k: v for k, v in line.labels.items() if k in table.compared}
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
    of a study's results beside the page.

    Raises:
        ConfigurationError: A folder holds no study, or results of another one.
        DataError: The page or a result cannot be read, or the page has no markers.
    """
    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {page}: {error}") from error
    names = _SECTION.findall(text)
    if not names:
        raise DataError(f"{page} has no section between '{BEGIN.format(name='NAME')}' and '{END}'")
    for name in names:
        folder = StudyFolder(page.parent / name)
        written = verdicts(study_table(folder, study_in(folder)))
        section = f"{BEGIN.format(name=name)}\n{written}{END}"
        pattern = re.compile(_SECTION.pattern.replace(r"(\S+)", re.escape(name)), re.DOTALL)
        text = pattern.sub(section.replace("\\", r"\\"), text)
    return text


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
