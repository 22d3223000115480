#!/usr/bin/env python
"""Mark the committed results whose commit the history does not have.

    python scripts/mark_results.py
    bfl verdicts docs/results/*.md --write    # their tables say how many there are

A result keeps its numbers, and its digest is written anew.
"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

from bfl.experiments.studies.run_result import COMMIT, NOT_FOUND, read_result, write_result

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Mark them, and unmark those whose commit is there after all."""
    command = ["git", "-C", str(ROOT), "rev-list", "HEAD"]
    history = set(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    )
    for path in sorted((ROOT / "docs" / "results").glob("*/runs/*.json")):
        result = read_result(path)
        kept = {k: v for k, v in result.environment.items() if k != NOT_FOUND}
        lost = {} if kept.get(COMMIT) in history else {NOT_FOUND: True}
        if {**kept, **lost} != result.environment:
            write_result(path, replace(result, environment={**kept, **lost}))
            print(path.relative_to(ROOT), "not found" if lost else "found")


if __name__ == "__main__":
    main()
