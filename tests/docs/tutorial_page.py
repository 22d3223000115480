"""Runs docs/tutorial.md in a copy of the checkout; called by itself, writes the outputs anew.

A block of commands or a snippet is followed by a block ``text`` with what its last one prints, or
by none. A snippet whose first line is a comment with a file's name is that file.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "tutorial.md"
COPIED = ("bfl", "strategies", "clients", "configs")
BLOCK = re.compile(r"```(sh|python|toml|text)\n(.*?)```", re.DOTALL)
FILE = re.compile(r"# (\S+\.(?:py|toml))\n")
COMMANDS = {"bfl": "bfl.commands.main", "flower-simulation": "bfl.commands.flower_simulation"}
VOLATILE = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"\b[0-9a-f]{40,}\b"), "HASH"),
    (re.compile(r"-?\d+\.\d+(e-?\d+)?"), "NUMBER"),
    (re.compile(r"\b\d+ (s|min)\b"), "TIME"),
    (re.compile(r"[ ─━]+"), " "),
)


def masked(text: str) -> list[str]:
    """Return the lines of an output without what differs from machine to machine."""
    for pattern, replacement in VOLATILE:
        text = pattern.sub(replacement, text)
    return [line.strip() for line in text.splitlines()]


def copy_checkout(folder: Path) -> None:
    """Copy what the commands need into a folder, as a checkout of its own."""
    for name in COPIED:
        ignored = shutil.ignore_patterns("__pycache__", ".*_cache")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)


def page_as_run(text: str, folder: Path) -> str:
    """Return the page with the outputs that its commands and snippets have in a copied checkout.

    Raises:
        RuntimeError: One of them has failed.
    """
    copy_checkout(folder)
    snippets = ""
    printed = ""

    def replaced(block: re.Match[str]) -> str:
        nonlocal snippets, printed
        kind, content = block.groups()
        if kind == "text":
            return f"```text\n{printed}```"
        printed = ""
        if file := FILE.match(content):
            (folder / file[1]).write_text(content, encoding="utf-8")
        elif kind == "python":
            # Each runs in a process of its own, behind those before it, which are not heard.
            program = "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()):\n"
            before = "".join(f"    {line}\n" for line in snippets.splitlines()) or "    pass\n"
            printed = output(folder, sys.executable, "-c", f"{program}{before}{content}")
            snippets += content
        else:
            for line in content.splitlines():
                printed = command_output(folder, line)
        return block.group()

    return BLOCK.sub(replaced, text)


def command_output(folder: Path, line: str) -> str:
    """Return what a command prints."""
    command, *arguments = shlex.split(line)
    if command not in COMMANDS:
        return output(folder, command, *arguments)
    code = f"import sys; from {COMMANDS[command]} import main; sys.exit(main(sys.argv[1:]))"
    return output(folder, sys.executable, "-c", code, *arguments)


def output(folder: Path, *words: str) -> str:
    """Return what a process prints, with the folder's own path left out."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "100", "NO_COLOR": "1"}
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, env=environment, timeout=300
    )
    if done.returncode:
        raise RuntimeError(f"{shlex.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}")
    text = done.stdout.replace(str(folder.resolve()), "…/bfl")
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        made = page_as_run(PAGE.read_text(encoding="utf-8"), Path(scratch))
    PAGE.write_text(made, encoding="utf-8")
