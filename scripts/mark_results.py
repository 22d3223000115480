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

from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.run_result import COMMIT, NOT_FOUND, RunResult

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Mark them, and unmark those whose commit is there after all."""
    command = ["git", "-C", str(ROOT), "rev-list", "HEAD"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    history = set(done.stdout.split())

    def marked(result: RunResult) -> RunResult:
        kept = {k: v for k, v in result.environment.items() if k != NOT_FOUND}
        lost = {} if kept.get(COMMIT) in history else {NOT_FOUND: True}
        return replace(result, environment={**kept, **lost})

    for path in sorted((ROOT / "docs" / "results").iterdir()):
        folder = StudyFolder(path)
        results = folder.results() if path.is_dir() else {}
        changed = [new for old in results.values() if (new := marked(old)) != old]
        if changed:
            folder.keep(changed, compress=True)
            print(path.name, ", ".join(result.name for result in changed))


if __name__ == "__main__":
    main()
