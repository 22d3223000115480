"""Pages of results: what stands between their markers is written anew from the results.

A section stands between ``<!-- KIND NAME -->`` and ``<!-- end of KIND -->``; NAME is the folder of
a study's results beside the page. What a section says, by its kind:

| kind | what it says |
| --- | --- |
| ``table`` | the study's table |
| ``verdicts`` | what is known of the orders of its lines |
| ``difference NAME: ONE against OTHER`` | how a line stands to another |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from bfl.errors import DataError, RunError
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.formats import markdown
from bfl.experiments.studies.reading import study_in
from bfl.experiments.studies.table import StudyTable, study_table
from bfl.experiments.studies.verdicts import difference, verdicts
from bfl.files import write_atomically


def _table(table: StudyTable, _: str) -> str:
    return markdown(table).partition("\n\n")[2]


def _verdicts(table: StudyTable, _: str) -> str:
    return verdicts(table)


def _difference(table: StudyTable, lines: str) -> str:
    one, _, other = lines.partition(" against ")
    return difference(table, one, other)


_KINDS: Mapping[str, Callable[[StudyTable, str], str]] = {
    "table": _table,
    "verdicts": _verdicts,
    "difference": _difference,
}
"""What writes a section, from the study's table and what stands behind the folder's name."""

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
    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {page}: {error}") from error
    if not _SECTION.search(text):
        raise DataError(
            f"{page} has no section between '<!-- verdicts NAME -->' and '<!-- end of verdicts -->'"
        )
    tables: dict[str, StudyTable] = {}

    def written(section: re.Match[str]) -> str:
        name = section["name"]
        if name not in tables:
            folder = StudyFolder(page.parent / name)
            tables[name] = study_table(folder, study_in(folder))
        text = _KINDS[section["kind"]](tables[name], section["what"] or "")
        return section["begin"] + text + section["end"]

    return _SECTION.sub(written, text)


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
