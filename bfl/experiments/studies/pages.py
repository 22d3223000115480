"""Pages of results: what stands between their markers is written anew from the results.

A section stands between ``<!-- KIND NAME -->`` and ``<!-- end of KIND -->``; NAME is the folder of
a study's results beside the page. What a section says, by its kind:

| kind | what it says |
| --- | --- |
| ``table`` | the study's table |
| ``verdicts`` | which declared orders are found, tested with those of the whole page |
| ``figures NAME`` | the figures that the study asks for, as far as they are drawn |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bfl.errors import DataError, RunError
from bfl.experiments.studies.figures import draw_study
from bfl.experiments.studies.folder import FIGURES, StudyFolder
from bfl.experiments.studies.formats import FORMATS, markdown
from bfl.experiments.studies.orders import Declared, declared_orders, verdicts
from bfl.experiments.studies.reading import study_in
from bfl.experiments.studies.table import StudyTable, study_table
from bfl.files import write_atomically
from bfl.texts import read_text


def _table(table: StudyTable, *_: object) -> str:
    return markdown(table).partition("\n\n")[2]


def _verdicts(table: StudyTable, _: StudyFolder, orders: Sequence[Declared]) -> str:
    return verdicts(table.pairing, orders)


def _figures(table: StudyTable, folder: StudyFolder, _: object) -> str:
    study, shown = table.pairing.study, []
    for spec in study.figures:
        file = f"{FIGURES}/{spec.name}.png"
        if (folder.path / file).is_file():
            shown.append(f"\n![{spec.title or study.title}]({folder.path.name}/{file})\n")
    return "".join([*shown, "\n"] if shown else [])


_KINDS: Mapping[str, Callable[[StudyTable, StudyFolder, Sequence[Declared]], str]] = {
    "table": _table,
    "verdicts": _verdicts,
    "figures": _figures,
}
"""What writes a section, from the study's table, its folder, and all orders of the page."""

_SECTION = re.compile(
    rf"(?P<begin><!-- (?P<kind>{'|'.join(_KINDS)}) (?P<name>\S+) -->\n)"
    r".*?(?P<end><!-- end of (?P=kind) -->)",
    re.DOTALL,
)


def rewritten(page: Path) -> str:
    """Return a page with what stands between its markers written anew.

    Raises:
        ConfigurationError: A folder holds no study, or results of another one, or not the lines.
        DataError: The page or a result cannot be read, or the page has no markers.
    """
    text = _read(page)
    names = dict.fromkeys(section["name"] for section in _SECTION.finditer(text))
    folders = {name: StudyFolder(page.parent / name) for name in names}
    tables = {name: study_table(folder, study_in(folder)) for name, folder in folders.items()}
    orders = declared_orders(table.pairing for table in tables.values())

    def written(section: re.Match[str]) -> str:
        name = section["name"]
        text = _KINDS[section["kind"]](tables[name], folders[name], orders)
        return section["begin"] + text + section["end"]

    return _SECTION.sub(written, text)


def _read(page: Path) -> str:
    """Return the text of a page with sections.

    Raises:
        DataError: It cannot be read, or has no markers.
    """
    try:
        text = read_text(page)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {page}: {error}") from error
    if not _SECTION.search(text):
        raise DataError(
            f"{page} has no section between '<!-- verdicts NAME -->' and '<!-- end of verdicts -->'"
        )
    return text


def write_tables(folder: StudyFolder, table: StudyTable) -> None:
    """Write a study's table into its folder, in all formats that say something.

    Raises:
        RunError: A file cannot be written.
    """
    for name, write in FORMATS.values():
        if text := write(table):
            folder.write(name, text.encode())


def write_folders(page: Path) -> None:
    """Write the tables and draw the figures of the studies that a page has sections of.

    Raises:
        ConfigurationError: A folder holds no study, or results of another one.
        DataError: The page or a result cannot be read, or the page has no markers.
        RunError: A file cannot be written.
    """
    for name in dict.fromkeys(section["name"] for section in _SECTION.finditer(_read(page))):
        folder = StudyFolder(page.parent / name)
        scaled = study_in(folder)
        write_tables(folder, study_table(folder, scaled))
        draw_study(folder, scaled)


def rewrite(page: Path) -> None:
    """Write a page's sections anew.

    Raises:
        ConfigurationError: See ``rewritten``.
        DataError: See ``rewritten``.
        RunError: The page cannot be written.
    """
    text = rewritten(page)
    try:
        write_atomically(page, text.encode())
    except OSError as error:
        raise RunError(f"cannot write {page}: {error.strerror or error}") from error
