"""Pages whose commands and snippets run, in their order, and print what stands below them.

A block of commands or a snippet is followed by a block ``text`` with what its last one prints, or
by none. A snippet whose first line is a comment with a file's name is that file. Called by itself,
this file writes the tutorial's outputs anew.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
BLOCK = re.compile(r"```(sh|python|toml|text)\n(.*?)```", re.DOTALL)
FILE = re.compile(r"# (\S+\.(?:py|toml))\n")
VOLATILE = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"\b[0-9a-f]{40,}\b"), "HASH"),
    (re.compile(r"-?\d+\.\d+(e-?\d+)?"), "NUMBER"),
    # So says a study of code that is not committed, which the tests' may be or not.
    (re.compile(r" \d+ of \d+ runs cannot be made again as they were:.*"), ""),
    (re.compile(r"[ ─━]+"), " "),
)
DOING = re.compile(r"\[ NUMBER s\] ")

STEPS = """
import contextlib, io, json, subprocess, sys
from bfl.commands.main import main
names, printed = {}, []
for given in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        if isinstance(given, str):
            exec(given, names)
        elif given[0] == "bfl":
            own = ["--uncommitted"] if given[1] == "study" else []  # as the tests' code may be
            assert not main(given[1:] + own), given
        else:
            subprocess.run(given, check=True)
    printed.append(said.getvalue())
print(json.dumps(printed))
"""


def page_as_run(text: str, folder: Path) -> str:
    """Return the page with the outputs that its commands and snippets have in an empty folder.

    One process runs them all: it imports modules once.
    """
    steps: list[str | list[str]] = []
    ends: list[int] = []
    for block in BLOCK.finditer(text):
        kind, content = block.groups()
        if file := FILE.match(content):
            (folder / file[1]).write_text(content, encoding="utf-8")
        elif kind == "python":
            steps.append(content)
        elif kind == "sh":
            steps += map(shlex.split, content.splitlines())
        else:
            ends.append(len(steps) - 1)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "NO_COLOR": "1"}
    words = [sys.executable, "-c", STEPS, json.dumps(steps)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env=environment)
    assert not done.returncode, done.stdout + done.stderr
    printed = json.loads(done.stdout.splitlines()[-1].replace(str(folder.resolve()), "…"))

    def shown(block: re.Match[str]) -> str:
        if block[1] != "text":
            return block.group()
        lines = printed[ends.pop(0)].splitlines()
        return "```text\n" + "".join(f"{line.rstrip()}\n" for line in lines) + "```"

    return BLOCK.sub(shown, text)


def masked(text: str) -> list[str]:
    """Return the lines of an output without what differs from machine to machine."""
    for pattern, replacement in VOLATILE:
        text = pattern.sub(replacement, text)
    return [line.strip() for line in text.splitlines()]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("page", ["tutorial.md", "api.md", "quickstart.ipynb"])
def test_a_page_shows_what_it_gives(page: str, tmp_path: Path) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    if page.endswith(".ipynb"):
        code = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        text = "\n".join(f"```python\n{''.join(cell['source'])}\n```" for cell in code)
    shown, printed = masked(text), masked(page_as_run(text, tmp_path))
    # A slow machine also says what it is doing, where three seconds would be silent.
    assert [line for line in printed if line in shown or not DOING.match(line)] == shown


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        made = page_as_run((DOCS / "tutorial.md").read_text(encoding="utf-8"), Path(scratch))
    (DOCS / "tutorial.md").write_text(made, encoding="utf-8")
