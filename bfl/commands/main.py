"""The command ``bfl``: what there is to choose from, and figures of finished runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from bfl.commands import (
    close,
    evaluate,
    features,
    federation,
    fidelity,
    flower_simulation,
    init,
    predict,
    runs,
    show,
    study,
)
from bfl.commands.terminal import (
    as_markdown,
    check_suffix,
    console,
    exits_with_status,
    path_argument,
    write_output,
)
from bfl.configuration.component_slots import REGISTRIES, SLOTS
from bfl.configuration.settings import Setting, settings, settings_of, unset_values
from bfl.data.datasets import dataset_sources
from bfl.errors import ConfigurationError, DataError, unknown_name
from bfl.experiments.results.figures import draw_all
from bfl.experiments.results.glossary import glossary_page
from bfl.experiments.results.report import REPORT, run_report
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.studies.opening import OUTPUT
from bfl.plugins import activate
from bfl.registry import Registry

_PARTS = """# Parts

All that you can choose, by key; settings are keys too, with their defaults in parentheses.
`bfl list --markdown` prints this page, and `bfl list KEY` one table of it.
"""
_KEYS = """# Keys

All configuration keys. `bfl keys --markdown` prints this page;
[configuration.md](configuration.md) says how to give values.
"""


def parser() -> argparse.ArgumentParser:
    """Return the command's options."""
    options = argparse.ArgumentParser(prog="bfl", description="Bayesian federated learning.")
    options.add_argument("--version", action="version", version=f"bfl {version('bfl')}")
    commands = options.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="simulate a federation, as flower-simulation does")
    flower_simulation.add_options_to(run)
    run.set_defaults(run=flower_simulation.start)
    choices = commands.add_parser("list", help="what a key can be set to, for instance: strategy")
    choices.add_argument("kind", nargs="?", default="", help="a key; without one, all kinds")
    choices.add_argument("--markdown", action="store_true", help="as the page docs/parts.md")
    choices.set_defaults(run=list_choices)
    keys = commands.add_parser("keys", help="all configuration keys with their defaults")
    keys.add_argument("--toml", action="store_true", help="as TOML")
    keys.add_argument("--markdown", action="store_true", help="as the page docs/keys.md")
    keys.set_defaults(run=list_keys)
    glossary = commands.add_parser("glossary", help="what metrics and keys mean, as Markdown")
    glossary.set_defaults(run=print_glossary)
    plot = commands.add_parser("plot", help="draw the figures of a run or of a study")
    plot.add_argument("folder", type=path_argument, help="the folder, or a study's TOML file")
    study.add_place_to(plot)
    plot.set_defaults(run=plot_folder)
    report = commands.add_parser("report", help="write a report: one HTML file to send")
    report.add_argument(
        "folder", type=path_argument, help="a run's folder, a study's, or its TOML file"
    )
    study.add_place_to(report)
    report.add_argument(
        "--to", type=path_argument, help="the file (default: report.html in the folder)"
    )
    report.set_defaults(run=write_report)
    init.add_to(commands)
    show.add_to(commands)
    study.add_to(commands)
    predict.add_to(commands)
    evaluate.add_to(commands)
    close.add_to(commands)
    features.add_to(commands)
    fidelity.add_to(commands)
    runs.add_to(commands)
    for name, command in commands.choices.items():
        if name not in ("glossary", "run"):  # a run has its plugins by the key
            _add_plugins_to(command)
    federation.add_to(commands)
    return options


def _add_plugins_to(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--plugins",
        default="",
        metavar="FILES",
        help="with the parts of these files and modules as well, as in the key plugins",
    )


@exits_with_status
def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    words = sys.argv[1:] if arguments is None else arguments
    given = parser().parse_args(study.in_words(words))
    activate(getattr(given, "plugins", ""))
    given.run(given)


def _registries() -> dict[str, Registry]:  # type: ignore[type-arg]
    return {registry.kind: registry for registry in (dataset_sources, *REGISTRIES)}


def list_choices(given: argparse.Namespace) -> None:
    """Print what is registered under a key, or under all."""
    registries = _registries()
    if given.kind and given.kind not in registries:
        raise ConfigurationError(unknown_name("kind", given.kind, registries))
    # A pooling rule's name is a strategy as well.
    shown = {given.kind, "pooling"} if given.kind == "strategy" else {given.kind or "all"}
    tables = [_choices_table(r) for kind, r in registries.items() if shown & {kind, "all"}]
    if given.markdown:
        print(_PARTS, *map(as_markdown, tables), sep="\n", end="")
        return
    console().print(*tables, sep="\n")


def _choices_table(registry: Registry) -> Table:  # type: ignore[type-arg]
    table = Table(title=registry.kind, title_justify="left")
    for header in ("name", "aliases", "settings", "what"):
        table.add_column(header, overflow="fold")
    for component in registry.classes():
        settings = settings_of(component)
        table.add_row(
            component.name,
            ", ".join(component.aliases),
            ", ".join(f"{key} ({field.default})" for key, field in settings.items()),
            escape(component.summary()),
        )
    return table


def print_glossary(given: argparse.Namespace) -> None:
    """Print the page ``docs/glossary.md``."""
    print(glossary_page({kind.key: kind.description for kind in SLOTS}), end="")


def list_keys(given: argparse.Namespace) -> None:
    """Print all keys with their defaults."""
    if given.toml:
        import tomli_w

        print(tomli_w.dumps(unset_values()), end="")
        return
    by_key: dict[str, list[Setting]] = {}
    for setting in settings():
        by_key.setdefault(setting.key, []).append(setting)
    table = Table()
    for header in ("key", "type", "default", "meaning"):
        table.add_column(header, overflow="fold")
    for key, declared in by_key.items():
        table.add_row(key, declared[0].type, _defaults(declared), escape(_meaning(declared)))
    if given.markdown:
        print(_KEYS, as_markdown(table), sep="\n", end="")
        return
    console().print(table)


def _defaults(declared: Sequence[Setting]) -> str:
    """Return a key's default, or its defaults with the parts that have them."""
    readers: dict[str, list[str]] = {}
    for setting in declared:
        readers.setdefault(repr(setting.default), []).append(setting.reader.split(" ")[-1])
    if len(readers) == 1:
        return next(iter(readers))
    return ", ".join(f"{default} ({', '.join(names)})" for default, names in readers.items())


def _meaning(declared: Sequence[Setting]) -> str:
    """Return what a key means, and which parts read it."""
    kinds: dict[str, list[str]] = {}
    for setting in declared:
        kind, _, name = setting.reader.partition(" ")
        kinds.setdefault(kind, []).append(name)
    readers = "; ".join(f"{kind} {', '.join(names)}" for kind, names in kinds.items() if kind)
    return f"{declared[0].description} ({readers})" if readers else declared[0].description


def _run_folder(given: argparse.Namespace) -> RunFolder:
    """Return a run's folder; refuse options of studies, which would do nothing."""
    folder = show.run_folder(given.folder)
    for name, default in {"output": Path(OUTPUT), "scale": "", "only": [], "results": []}.items():
        if getattr(given, name) != default:
            raise ConfigurationError(f"--{name} is for studies; {given.folder} is a run")
    return folder


def plot_folder(given: argparse.Namespace) -> None:
    """Draw the figures of a run, or of a study, from its folder."""
    if study.is_study_place(given.folder):
        study.plot_study(given.folder, given)
        return
    folder = _run_folder(given)
    # A run that has drawn none was in a hurry; whoever asks for them now wants them.
    hurried = folder.config().get("figures") == "none"
    paths = draw_all(folder, "png" if hurried else "")
    if not paths:
        raise DataError(f"{given.folder} holds nothing to draw yet")
    for path in paths:
        print(path)


def write_report(given: argparse.Namespace) -> None:
    """Write the report of a run or of a study, and print where it is."""
    if given.to:
        check_suffix("--to", given.to, ".html")
    if study.is_study_place(given.folder):
        folder, page = study.report_of(given.folder, given)
    else:
        folder, page = given.folder, run_report(_run_folder(given))
    write_output(given.to or folder / REPORT, page.encode())
