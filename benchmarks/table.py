"""Put the results of all benchmarks into one Markdown file.

python benchmarks/table.py FOLDER_OF_JSON FILE.md
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from measuring import markdown

SHOWN = ("processor", "processors", "memory-bytes", "platform", "python")
PACKAGES = ("flwr", "ray", "tensorflow", "tensorflow-probability", "numpy")


def main() -> None:
    """Write the file."""
    folder, output = Path(sys.argv[1]), Path(sys.argv[2])
    files = sorted(folder.glob("*.json"))
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    if not reports:
        sys.exit(f"{folder} holds no results")
    made_on = {_described(report["environment"]) for report in reports}
    lines = [
        "# Benchmarks",
        "",
        "`scripts/benchmark.sh` runs them all and writes this file from the JSON files beside it.",
        "Both sides of a comparison are measured in the same run, in turn where they share a",
        "process; a cell is the median with the range of the runs, and the ratio is how many times",
        "better ours is. What is quoted was measured on another machine of two cores, so its ratio",
        "is rough.",
        "",
        *(f"- Machine and versions: {machine}." for machine in sorted(made_on)),
        "",
    ]
    output.parent.mkdir(parents=True, exist_ok=True)
    sections = [_section(report, told=len(made_on) == 1) for report in reports]
    output.write_text("\n".join([*lines, "\n".join(sections)]), encoding="utf-8")
    print(output.read_text(encoding="utf-8"))


def _described(environment: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {environment[key]}" for key in (*SHOWN, *PACKAGES))


def _section(report: Mapping[str, Any], *, told: bool) -> str:
    """Return a benchmark's section, with where it was made unless that has been told for all."""
    environment = report["environment"]
    commit = environment["git-commit"]
    made = [] if told else [_described(environment)]
    changed = ", with changes that were not committed" if environment["git-changed"] else ""
    made += [f"commit {commit[:8]}{changed}"] if commit else []
    return markdown(report) + (f"- Made on: {'; '.join(made)}.\n" if made else "")


if __name__ == "__main__":
    main()
