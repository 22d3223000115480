#!/usr/bin/env python
"""Write the tables and claims in pages of results anew, from the folders of studies next to them.

    python scripts/verdicts.py docs/results/which-rule.md

Between ``<!-- claims STUDY … -->`` or ``<!-- table STUDY -->`` and ``<!-- end -->`` stand claims of
studies, or a study's table; STUDY is a folder of results next to the page. The claims' forest plots
are beside it, and each study's table and figures are in its folder.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

import pandas as pd

from bfl.experiments.results.figures.style import png
from bfl.experiments.studies.claims import claims, claims_markdown, decimals_of, forest_plot
from bfl.experiments.studies.figures import draw_study
from bfl.experiments.studies.results import open_study
from bfl.experiments.studies.table import StudyTable, markdown, notes_of_origin, study_table

SECTION = re.compile(r"(<!-- (claims|table) (\S+(?: \S+)*) -->\n).*?(<!-- end -->)", re.DOTALL)


def rewrite(path: Path) -> tuple[str, dict[str, pd.DataFrame]]:
    """Return a page's text with its sections generated again, and its claims by their plots."""
    plots: dict[str, pd.DataFrame] = {}

    @cache
    def table_of(name: str) -> StudyTable:
        return study_table(open_study(path.parent / name))

    def write(section: re.Match[str]) -> str:
        begin, kind, names, end = section.groups()
        tables = {name: table_of(name) for name in names.split()}
        if kind == "table":
            text = "\n".join(markdown(table).partition("\n\n")[2] for table in tables.values())
            return begin + text + end
        found = claims({n.removeprefix(f"{path.stem}-"): t for n, t in tables.items()})
        text = claims_markdown(found, decimals_of(*tables.values()))
        notes = notes_of_origin([table.results for table in tables.values()])
        text += "".join(f"\n{note}\n" for note in notes)
        plot = f"{path.stem}-{len(plots) + 1}.png" if plots else f"{path.stem}.png"
        plots[plot] = found
        return f"{begin}![Forest plot]({plot})\n\n{text}{end}"

    return SECTION.sub(write, path.read_text(encoding="utf-8")), plots


def main() -> None:
    """Write the pages, their forest plots, and their studies' tables and figures."""
    for path in map(Path, sys.argv[1:]):
        text, plots = rewrite(path)
        path.write_text(text, encoding="utf-8")
        for plot, found in plots.items():
            (path.parent / plot).write_bytes(png(forest_plot(found)))
        for name in {name for section in SECTION.finditer(text) for name in section[3].split()}:
            study = open_study(path.parent / name)
            study.folder.write("table.md", markdown(study_table(study)).encode())
            draw_study(study)
        print(path)


if __name__ == "__main__":
    main()
