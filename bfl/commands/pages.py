"""The commands ``bfl plot`` and ``bfl report``: figures and reports of runs and studies."""

from __future__ import annotations

import argparse
from pathlib import Path

from bfl.commands import study
from bfl.commands.terminal import check_suffix, path_argument, write_output
from bfl.errors import ConfigurationError, DataError
from bfl.experiments.results.figures import draw_all
from bfl.experiments.results.report import REPORT, run_report
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.studies.results import OUTPUT


def add_plot_to(plot: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl plot``."""
    plot.add_argument("folder", type=path_argument, help="the folder, or a study's TOML file")
    study.add_place_to(plot)
    plot.set_defaults(run=plot_folder)


def add_report_to(report: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl report``."""
    report.add_argument(
        "folder", type=path_argument, help="the folder of a run or a study, or a study's TOML file"
    )
    study.add_place_to(report)
    report.add_argument(
        "--to", type=path_argument, help="the file (default: report.html in the folder)"
    )
    report.set_defaults(run=write_report)


def _run_folder(given: argparse.Namespace) -> RunFolder:
    """Return a run's folder; refuse options that are for studies."""
    folder = RunFolder.at(given.folder)
    for name, default in {"output": Path(OUTPUT), "scale": "", "only": [], "results": []}.items():
        if getattr(given, name) != default:
            raise ConfigurationError(f"--{name} is for studies; {given.folder} is a run")
    return folder


def plot_folder(given: argparse.Namespace) -> None:
    """Draw the figures of a run or a study from its folder."""
    if study.is_study_place(given.folder):
        study.plot_study(given.folder, given)
        return
    folder = _run_folder(given)
    # figures="none" saves the run time; this command asks for them explicitly.
    hurried = folder.config().get("figures") == "none"
    paths = draw_all(folder, "png" if hurried else "")
    if not paths:
        raise DataError(f"{given.folder} holds nothing to draw yet")
    for path in paths:
        print(path)


def write_report(given: argparse.Namespace) -> None:
    """Write the report of a run or a study, and print its path."""
    if given.to:
        check_suffix("--to", given.to, ".html")
    if study.is_study_place(given.folder):
        folder, page = study.report_of(given.folder, given)
    else:
        folder, page = given.folder, run_report(_run_folder(given))
    write_output(given.to or folder / REPORT, page.encode())
