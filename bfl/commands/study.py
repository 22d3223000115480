"""The commands of studies, figures and reports, and ``bfl init``: a folder to begin with."""

from __future__ import annotations

import argparse
from pathlib import Path

from bfl.commands.terminal import add_run_config_to, check_suffix, path_argument, write_output
from bfl.configuration.sources import read_run_config
from bfl.errors import ConfigurationError, DataError
from bfl.experiments.results.environment import describe_environment
from bfl.experiments.results.figures import draw_all
from bfl.experiments.results.report import run_report
from bfl.experiments.results.run_folder import REPORT, RunFolder
from bfl.experiments.run.simulation import read_backend_config
from bfl.experiments.studies.claims import study_report, with_claims
from bfl.experiments.studies.figures import draw_study
from bfl.experiments.studies.results import OUTPUT, STUDY_TOML, OpenedStudy, StudyFolder, open_study
from bfl.experiments.studies.runner import MACHINE_KEYS, make_study
from bfl.experiments.studies.table import study_table


def add_to(study: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl study``."""
    study.add_argument("file", type=path_argument, metavar="FILE", help="the study's TOML file")
    add_place_to(study)
    text = f"""keys of this machine, 'data-dir="FOLDER"'; allowed: {", ".join(MACHINE_KEYS)}"""
    add_run_config_to(study, text)
    text = "ray: Flower's engine; serial: without Ray; of each run"
    study.add_argument("--backend", choices=("ray", "serial"), default="ray", help=text)
    text = """for instance '{"client_resources": {"num_cpus": 1, "num_gpus": 0.1}}'"""
    study.add_argument("--backend-config", default="{}", metavar="JSON", help=text)
    text = "check all runs and list them; make none"
    study.add_argument("--dry-run", action="store_true", help=text)
    text = "make runs with code of a checkout that has changes, though nobody can repeat them"
    study.add_argument("--uncommitted", action="store_true", help=text)
    study.set_defaults(run=run_study)


def add_place_to(options: argparse.ArgumentParser) -> None:
    """Add the options of a study's folder, runs and further results."""
    text, default = f"the parent of the study's folder (default: {OUTPUT})", Path(OUTPUT)
    options.add_argument("--output", type=path_argument, default=default, metavar="DIR", help=text)
    text = "select the runs whose name contains this, or matches it with * and ?; repeatable"
    options.add_argument("--only", action="append", default=[], metavar="PATTERN", help=text)
    text = "without the results in docs/results of the checkout"
    options.add_argument("--anew", action="store_true", help=text)


def opened(path: Path, given: argparse.Namespace) -> OpenedStudy:
    """Return the study of a path and the options of ``add_place_to``."""
    return open_study(path, output=given.output, only=given.only, anew=given.anew)


def run_study(given: argparse.Namespace) -> None:
    """Make the missing runs of a study."""
    if given.file.is_dir():
        raise ConfigurationError(f"{given.file} is a folder; allowed: a study's TOML file")
    read_backend_config(given.backend_config)
    study = opened(given.file, given)
    if describe_environment()["git-changed"] and not (given.dry_run or given.uncommitted):
        raise ConfigurationError(
            "the checkout of bfl has changes that are not committed, so nobody could repeat the "
            "study's runs: commit them, or give --uncommitted"
        )
    make_study(
        study,
        read_run_config(given.run_config),
        backend=("--backend", given.backend, "--backend-config", given.backend_config),
        dry_run=given.dry_run,
    )


def add_table_to(table: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl table``."""
    text = "the study's folder, or its TOML file"
    table.add_argument("study", type=path_argument, metavar="STUDY", help=text)
    add_place_to(table)
    table.set_defaults(run=print_table)


def print_table(given: argparse.Namespace) -> None:
    """Print a study's table and claims as Markdown."""
    print(with_claims(study_table(opened(given.study, given))), end="")


def add_plot_to(plot: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl plot``."""
    plot.add_argument("folder", type=path_argument, help="the folder, or a study's TOML file")
    add_place_to(plot)
    plot.set_defaults(run=draw_figures)


def add_report_to(report: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl report``."""
    text = "the folder of a run or a study, or a study's TOML file"
    report.add_argument("folder", type=path_argument, help=text)
    add_place_to(report)
    text = "the file (default: report.html in the folder)"
    report.add_argument("--to", type=path_argument, help=text)
    report.set_defaults(run=write_report)


def draw_figures(given: argparse.Namespace) -> None:
    """Draw the figures of a run or a study from its folder, and print their paths."""
    if _is_study(given):
        paths = draw_study(opened(given.folder, given))
    else:
        paths = draw_all(RunFolder.at(given.folder))
    if not paths:
        raise DataError(f"{given.folder} holds nothing to draw yet")
    for path in paths:
        print(path)


def write_report(given: argparse.Namespace) -> None:
    """Write the report of a run or a study, and print its path."""
    if given.to:
        check_suffix("--to", given.to, ".html")
    if _is_study(given):
        asked = opened(given.folder, given)
        folder, page = asked.folder.path, study_report(asked)
    else:
        folder, page = given.folder, run_report(RunFolder.at(given.folder))
    write_output(given.to or folder / REPORT, page.encode())


def _is_study(given: argparse.Namespace) -> bool:
    if given.folder.suffix == ".toml" or StudyFolder(given.folder).holds(STUDY_TOML):
        return True
    for option, default in (("output", Path(OUTPUT)), ("only", []), ("anew", False)):
        if getattr(given, option) != default:
            raise ConfigurationError(f"--{option} is for studies, and {given.folder} is a run's")
    return False


def add_init_to(init: argparse.ArgumentParser) -> None:
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
