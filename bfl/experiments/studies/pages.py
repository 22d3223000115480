"""Pages of results: what stands between their markers is written anew from the results.

A section stands between ``<!-- KIND NAME -->`` and ``<!-- end of KIND -->``; NAME is the folder of
a study's results beside the page. What a section says, by its kind:

| kind | what it says |
| --- | --- |
| ``table`` | the study's table |
| ``verdicts`` | what is known of the orders of its lines |
| ``difference NAME: ONE against OTHER`` | how a line stands to another |
| ``figures NAME`` | the figures that the study asks for, as far as they are drawn |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from bfl.errors import DataError, RunError
from bfl.experiments.studies.figures import draw_study
from bfl.experiments.studies.folder import FIGURES, StudyFolder
from bfl.experiments.studies.formats import FORMATS, markdown
from bfl.experiments.studies.reading import study_in
from bfl.experiments.studies.table import StudyTable, study_table
from bfl.experiments.studies.verdicts import difference, verdicts
from bfl.files import write_atomically
from bfl.texts import read_text


def _table(table: StudyTable, *_: object) -> str:
    return markdown(table).partition("\n\n")[2]


def _verdicts(table: StudyTable, *_: object) -> str:
    return verdicts(table)


def _difference(table: StudyTable, lines: str, _: StudyFolder) -> str:
    one, other = lines.partition(" against ")[::2]
    return difference(table, one, other)


def _figures(table: StudyTable, _: str, folder: StudyFolder) -> str:
    study, shown = table.pairing.study, []
    for spec in study.figures:
        file = f"{FIGURES}/{spec.name}.png"
        if (folder.path / file).is_file():
            shown.append(f"\n![{spec.title or study.title}]({folder.path.name}/{file})\n")
    return "".join([*shown, "\n"] if shown else [])


_KINDS: Mapping[str, Callable[[StudyTable, str, StudyFolder], str]] = {
    "table": _table,
    "verdicts": _verdicts,
    "difference": _difference,
    "figures": _figures,
}
"""What writes a section, from the study's table, what stands behind its name, and its folder."""

_SECTION = re.compile(
    rf"(?P<begin><!-- (?P<kind>{'|'.join(_KINDS)}) (?P<name>[^\s:]+)(?:: (?P<what>[^\n]+?))? -->\n)"
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
    tables: dict[str, StudyTable] = {}

    def written(section: re.Match[str]) -> str:
        name = section["name"]
        if name not in tables:
            folder = StudyFolder(page.parent / name)
            tables[name] = study_table(folder, study_in(folder))
        folder = StudyFolder(page.parent / name)
        text = _KINDS[section["kind"]](tables[name], section["what"] or "", folder)
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
