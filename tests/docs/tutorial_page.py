"""Runs docs/tutorial.md in an empty folder; called by itself, writes the outputs anew.

A block of commands or a snippet is followed by a block ``text`` with what its last one prints, or
by none. A snippet whose first line is a comment with a file's name is that file.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "tutorial.md"
BLOCK = re.compile(r"```(sh|python|toml|text)\n(.*?)```", re.DOTALL)
FILE = re.compile(r"# (\S+\.(?:py|toml))\n")
COMMANDS = {"bfl": "bfl.commands.main"}
VOLATILE = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"\b[0-9a-f]{40,}\b"), "HASH"),
    (re.compile(r"-?\d+\.\d+(e-?\d+)?"), "NUMBER"),
    (re.compile(r"\b\d+ (s|min)\b"), "TIME"),
    # So says a study of code that is not committed, which the tests' may be or not.
    (re.compile(r" \d+ of \d+ runs cannot be made again as they were:.*"), ""),
    (re.compile(r"[ ─━]+"), " "),
)


def masked(text: str) -> list[str]:
    """Return the lines of an output without what differs from machine to machine."""
    for pattern, replacement in VOLATILE:
        text = pattern.sub(replacement, text)
    return [line.strip() for line in text.splitlines()]


STEPS = """
import contextlib, importlib, io, json, subprocess, sys
names, printed = {}, []
for module, given in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        if module:
            own = ["--uncommitted"] if given[0] == "study" else []  # as the tests' code may be
            assert not importlib.import_module(module).main(given + own), given
        elif isinstance(given, list):
            subprocess.run(given, check=True)
        else:
            exec(given, names)
    printed.append(said.getvalue())
print(json.dumps(printed))
"""


def page_as_run(text: str, folder: Path) -> str:
    """Return the page with the outputs that its commands and snippets have in an empty folder.

    One process runs them all: it imports modules once.

    Raises:
        RuntimeError: One of them has failed.
    """
    steps: list[tuple[str, str | list[str]]] = []
    ends: list[int] = []
    for block in BLOCK.finditer(text):
        kind, content = block.groups()
        if file := FILE.match(content):
            (folder / file[1]).write_text(content, encoding="utf-8")
        elif kind == "python":
            steps.append(("", content))
        elif kind == "sh":
            for command, *arguments in map(shlex.split, content.splitlines()):
                module = COMMANDS.get(command, "")
                steps.append((module, arguments if module else [command, *arguments]))
        else:
            ends.append(len(steps) - 1)
    printed = json.loads(output(folder, sys.executable, "-c", STEPS, json.dumps(steps)))

    def shown(block: re.Match[str]) -> str:
        if block[1] != "text":
            return block.group()
        lines = printed[ends.pop(0)].splitlines()
        return "```text\n" + "".join(f"{line.rstrip()}\n" for line in lines) + "```"

    return BLOCK.sub(shown, text)


def output(folder: Path, *words: str) -> str:
    """Return what a process prints, with the folder's own path left out."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "NO_COLOR": "1"}
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, env=environment, timeout=900
    )
    if done.returncode:
        raise RuntimeError(f"{shlex.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.replace(str(folder.resolve()), "…")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        made = page_as_run(PAGE.read_text(encoding="utf-8"), Path(scratch))
    PAGE.write_text(made, encoding="utf-8")
