"""Put the results of all benchmarks into one Markdown file.

python benchmarks/table.py FOLDER_OF_JSON FILE.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from measuring import markdown

SHOWN = ("processor", "processors", "memory-bytes", "platform", "python")
PACKAGES = ("flwr", "ray", "tensorflow", "tensorflow-probability", "numpy", "git-commit")


def main() -> None:
    """Write the file."""
    folder, output = Path(sys.argv[1]), Path(sys.argv[2])
    files = sorted(folder.glob("*.json"))
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    if not reports:
        sys.exit(f"{folder} holds no results")
    environment = reports[0]["environment"]
    machine = ", ".join(f"{key} {environment[key]}" for key in SHOWN)
    versions = ", ".join(f"{key} {environment[key]}" for key in PACKAGES)
    lines = [
        "# Benchmarks",
        "",
        "`scripts/benchmark.sh` runs them all and writes this file from the JSON files beside it.",
        "Both sides of a comparison are measured in the same run, in turn where they share a",
        "process; a cell is the median with the range of the runs, and the ratio is how many times",
        "better ours is. What is quoted was measured on another machine of two cores, so its ratio",
        "is rough.",
        "",
        f"- Machine: {machine}.",
        f"- Versions: {versions}.",
        "",
    ]
    output.parent.mkdir(parents=True, exist_ok=True)
    sections = [markdown(report) for report in reports]
    output.write_text("\n".join([*lines, "\n".join(sections)]), encoding="utf-8")
    print(output.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
