"""The commands of studies: runs, tables, figures and pages."""

from __future__ import annotations

import argparse
import shlex
from itertools import chain
from pathlib import Path

from bfl.commands.terminal import add_run_config_to, path_argument
from bfl.configuration.sources import read_run_config
from bfl.errors import ConfigurationError, DataError, unknown_name
from bfl.experiments.run.simulation import BACKENDS, read_backend_config
from bfl.experiments.studies.figures import draw_study
from bfl.experiments.studies.pages import rewrite, study_report, with_claims
from bfl.experiments.studies.results import OUTPUT, OpenedStudy, StudyFolder, open_study
from bfl.experiments.studies.runner import MACHINE_KEYS, make_study
from bfl.experiments.studies.study import REDUCIBLE
from bfl.experiments.studies.table import FORMATS, study_table


def add_to(study: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl study``."""
    study.add_argument("file", type=path_argument, metavar="FILE", help="the study's TOML file")
    add_place_to(study)
    add_run_config_to(
        study,
        f"""keys of this machine, 'data-dir="FOLDER"'; allowed: {", ".join(MACHINE_KEYS)}""",
    )
    study.add_argument(
        "--backend",
        default="ray",
        metavar="{ray,serial}",
        help="ray: Flower's engine; serial: without Ray; of each run",
    )
    study.add_argument(
        "--backend-config",
        default="{}",
        metavar="JSON",
        help="""for instance '{"client_resources": {"num_cpus": 1, "num_gpus": 0.1}}'""",
    )
    study.add_argument(
        "--dry-run", action="store_true", help="check all runs and list them; make none"
    )
    study.add_argument(
        "--verbose", action="store_true", help="show the runs' output instead of logging it"
    )
    study.set_defaults(run=run_study)


def add_place_to(options: argparse.ArgumentParser) -> None:
    """Add the options of a study's folder, scale, runs and further results."""
    options.add_argument(
        "--output",
        type=path_argument,
        default=Path(OUTPUT),
        metavar="DIR",
        help=f"the parent of the study's folder (default: {OUTPUT})",
    )
    options.add_argument(
        "--scale",
        default="",
        metavar="NAME=AMOUNT,...",
        help="a reduction, such as rounds=0.05,train-examples=0.2,seeds=1: below 1 a share, from 1 "
        f"a number, which can be greater for seeds; names: {', '.join(REDUCIBLE)}",
    )
    options.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PATTERN",
        help="select the runs whose name contains this, or matches it with * and ?; repeatable",
    )
    options.add_argument(
        "--results",
        type=path_argument,
        action="append",
        default=[],
        metavar="DIR",
        help="a folder with runs.csv, whose runs are not repeated; repeatable "
        "(default: docs/results/STUDY of the checkout of the study's file; 'none': no folder)",
    )


def opened(path: Path, given: argparse.Namespace) -> OpenedStudy:
    """Return the study of a path and the options of ``add_place_to``."""
    return open_study(
        path, output=given.output, scale=given.scale, only=given.only, results=given.results
    )


def run_study(given: argparse.Namespace) -> None:
    """Make the missing runs of a study."""
    if given.file.is_dir():
        raise ConfigurationError(f"{given.file} is a folder; allowed: a study's TOML file")
    if given.backend not in BACKENDS:
        raise ConfigurationError(unknown_name("--backend", given.backend, BACKENDS))
    read_backend_config(given.backend_config)
    make_study(
        opened(given.file, given),
        read_run_config(given.run_config),
        backend=("--backend", given.backend, "--backend-config", given.backend_config),
        dry_run=given.dry_run,
        verbose=given.verbose,
        table=_table_command(given),
    )


def _table_command(given: argparse.Namespace) -> str:
    """Return the command that prints a study's table."""
    output = [] if given.output == Path(OUTPUT) else ["--output", given.output]
    scale = ["--scale", given.scale] if given.scale else []
    results = chain.from_iterable(("--results", place) for place in given.results)
    return shlex.join(map(str, ("bfl", "table", given.file, *output, *scale, *results)))


def add_table_to(table: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl table``."""
    table.add_argument(
        "study", type=path_argument, metavar="STUDY", help="the study's folder, or its TOML file"
    )
    add_place_to(table)
    table.add_argument("--format", default="markdown", metavar=f"{{{','.join(FORMATS)}}}")
    table.add_argument(
        "--write", action="store_true", help="also write all formats into the study's folder"
    )
    table.set_defaults(run=print_table)


def add_verdicts_to(pages: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl verdicts``."""
    pages.add_argument(
        "pages", type=path_argument, nargs="+", metavar="PAGE", help="a Markdown file"
    )
    pages.add_argument(
        "--write", action="store_true", help="also write the tables and figures of its studies"
    )
    pages.set_defaults(run=write_pages)


def print_table(given: argparse.Namespace) -> None:
    """Print a study's table."""
    if given.format not in FORMATS:
        raise ConfigurationError(unknown_name("--format", given.format, FORMATS))
    asked = opened(given.study, given)
    table = study_table(asked)
    write = with_claims if given.format == "markdown" else FORMATS[given.format][1]
    print(write(table), end="")
    if given.write:
        for name, write in FORMATS.values():
            asked.folder.write(name, write(table).encode())


def plot_study(path: Path, given: argparse.Namespace) -> None:
    """Draw a study's figures and print their paths."""
    asked = opened(path, given)
    paths = draw_study(asked)
    if not paths:
        raise DataError(f"{asked.folder.path} holds nothing to draw yet")
    for figure in paths:
        print(figure)


def report_of(path: Path, given: argparse.Namespace) -> tuple[Path, str]:
    """Return a study's folder and its report."""
    asked = opened(path, given)
    return asked.folder.path, study_report(asked)


def is_study_place(path: Path) -> bool:
    """Return whether a path is a study's TOML file or folder."""
    return path.suffix == ".toml" or StudyFolder(path).holds_study()


def write_pages(given: argparse.Namespace) -> None:
    """Rewrite the sections of pages; with --write also tables and figures of their studies."""
    for page in given.pages:
        rewrite(page, folders=given.write)
        print(page)
