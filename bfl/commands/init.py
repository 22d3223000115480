"""The command ``bfl init``: a folder with a configuration, a rule and a study to begin with."""

from __future__ import annotations

import argparse
from pathlib import Path

from bfl.commands.terminal import path_argument, write_output
from bfl.errors import ConfigurationError


def add_to(init: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl init``."""
    init.add_argument("folder", type=path_argument, help="the folder")
    init.set_defaults(run=make_folder)


def make_folder(given: argparse.Namespace) -> None:
    """Write the files of the folder ``template``, and print their paths."""
    template = Path(__file__).with_name("template")
    files = sorted(path for path in template.iterdir() if path.is_file())
    if there := [path.name for path in files if (given.folder / path.name).exists()]:
        raise ConfigurationError(f"{given.folder} has {', '.join(there)}; choose another folder")
    given.folder.mkdir(parents=True, exist_ok=True)
    for path in files:
        write_output(given.folder / path.name, path.read_bytes())
