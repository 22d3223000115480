"""The commands ``bfl list`` and ``bfl keys``: what there is to choose from."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from bfl.commands.terminal import as_markdown, console
from bfl.configuration.component_slots import REGISTRIES
from bfl.configuration.settings import Setting, settings, settings_of, unknown_key
from bfl.data.datasets import dataset_sources
from bfl.errors import ConfigurationError, unknown_name
from bfl.registry import Registry

_PARTS = """# Parts

All that you can choose, by key; settings are keys too, with their defaults in parentheses.
`bfl list --markdown` prints this page, and `bfl list KEY` one table of it.
"""
_KEYS = """# Keys

All configuration keys. `bfl keys --markdown` prints this page;
[configuration.md](configuration.md) says how to give values.
"""


def add_list_to(choices: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl list``."""
    choices.add_argument("kind", nargs="?", default="", help="a key; without one, all kinds")
    choices.add_argument("--markdown", action="store_true", help="as the page docs/parts.md")
    choices.set_defaults(run=list_choices)


def add_keys_to(keys: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl keys``."""
    keys.add_argument("word", nargs="?", default="", help="those with this in key or meaning")
    keys.add_argument("--markdown", action="store_true", help="as the page docs/keys.md")
    keys.set_defaults(run=list_keys)


def list_choices(given: argparse.Namespace) -> None:
    """Print what is registered under a key, or under all."""
    registries = {registry.kind: registry for registry in (dataset_sources, *REGISTRIES)}
    if given.kind and given.kind not in registries:
        raise ConfigurationError(unknown_name("kind", given.kind, registries))
    chosen = [r for kind, r in registries.items() if given.kind in (kind, "")]
    tables = list(map(_choices_table, chosen))
    if given.kind == "strategy":
        rules = _choices_table(registries["pooling"])
        rules.title = "pooling: each of these rules is a strategy as well"
        tables.append(rules)
    if given.markdown:
        print(_PARTS, *map(as_markdown, tables), sep="\n", end="")
        return
    console().print(*tables, sep="\n")


def _choices_table(registry: Registry) -> Table:  # type: ignore[type-arg]
    table = Table(title=registry.kind, title_justify="default")
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


def list_keys(given: argparse.Namespace) -> None:
    """Print all keys with their defaults."""
    by_key: dict[str, list[Setting]] = {}
    for setting in settings():
        by_key.setdefault(setting.key, []).append(setting)
    if given.word:
        word = given.word.lower().replace("_", "-")
        begins = re.compile(rf"\b{re.escape(word)}")
        by_key = {
            key: declared
            for key, declared in by_key.items()
            if begins.search(f"{key} {_meaning(declared)}".lower())
        }
        if not by_key:
            raise ConfigurationError(unknown_key(given.word, [s.key for s in settings()]))
    table = Table()
    for header in ("key", "type", "default", "meaning"):
        table.add_column(header, overflow="fold")
    for key, declared in by_key.items():
        readers: dict[str, list[str]] = {}
        for setting in declared:
            readers.setdefault(repr(setting.default), []).append(setting.reader.split(" ")[-1])
        defaults = ", ".join(
            f"{default} ({', '.join(names)})" if readers.keys() - {default} else default
            for default, names in readers.items()
        )
        table.add_row(key, declared[0].type, defaults, escape(_meaning(declared)))
    if given.markdown:
        print(_KEYS, as_markdown(table), sep="\n", end="")
        return
    console().print(table)


def _meaning(declared: Sequence[Setting]) -> str:
    kinds: dict[str, list[str]] = {}
    for setting in declared:
        kind, _, name = setting.reader.partition(" ")
        kinds.setdefault(kind, []).append(name)
    readers = "; ".join(f"{kind} {', '.join(names)}" for kind, names in kinds.items() if kind)
    return f"{declared[0].description} ({readers})" if readers else declared[0].description
