"""The table of what FedBE's code does beside its paper is what the two folders of studies have."""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

from bfl.experiments.studies.study import read_study

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "fedbe.md"


def rows() -> dict[str, dict[str, Any]]:
    """Return the keys that each row of the table names, by its first cell."""
    _, section = PAGE.read_text("utf-8").split("## As written and as coded")
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    found = {}
    for what, *_, cell in lines[2:]:
        pairs = shlex.split(" ".join(re.findall(r"`(.*?)`", cell)), posix=False)
        found[what.strip()] = tomllib.loads("\n".join(pairs))
    return found


def runs_of(folder: str) -> list[dict[str, Any]]:
    """Return the complete values of the runs of Tables 1, 2 and 7 that distil, of one seed."""
    studies = [read_study(ROOT / "configs" / folder / f"table{n}.toml") for n in (1, 2, 7)]
    chosen = [run for study in studies for run in study.runs if run.values["seed"] == 0]
    complete = [run.configuration.values for run in chosen]
    return [values for values in complete if values["refinement"] == "distillation"]


def has(runs: list[dict[str, Any]], asked: dict[str, Any]) -> bool:
    return any(all(run.get(key) == value for key, value in asked.items()) for run in runs)


def test_each_row_is_what_the_studies_have() -> None:
    written, coded = runs_of("fedbe2021"), runs_of("fedbe2021-as-coded")
    for row, asked in rows().items():
        assert asked
        assert has(coded, asked), row
        assert not has(written, asked), row
