"""Continuous integration runs all parts of the tests, and fails when one of them fails."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(("tests", "long", "alone"), [(0, 0, 0), (0, 3, 0), (1, 3, 4)])
def test_all_parts_are_run_and_judged(tests: int, long: int, alone: int, tmp_path: Path) -> None:
    for folder in (".ci", "scripts"):
        (tmp_path / folder).mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    stand_in = tmp_path / "scripts" / "test.sh"
    stand_in.write_text(
        "#!/usr/bin/env bash\n"
        'case "$2" in\n'
        f'"long and not alone") echo "== 5 long =="; exit {long} ;;\n'
        f'"long and alone") echo "== 6 alone =="; exit {alone} ;;\n'
        "esac\n"
        f'echo "== 7 quick =="; exit {tests}\n',
        encoding="utf-8",
    )
    stand_in.chmod(0o755)
    done = subprocess.run(
        [tmp_path / ".ci" / "run"],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},  # no other Python
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == (tests or long or alone)
    *_, quick, more, last, newest = done.stdout.splitlines()
    assert newest.startswith("quick tests, Python 3.13")
    assert [quick, more, last] == [
        f"tests (status {tests}): == 7 quick ==",
        f"long tests (status {long}): == 5 long ==",
        f"long tests, alone (status {alone}): == 6 alone ==",
    ]
