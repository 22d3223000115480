"""Sources of configuration values: an app's pyproject.toml, TOML files, key=value pairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bfl.configuration.configuration import resolve
from bfl.configuration.settings import Value, default_values, parse_pairs
from bfl.errors import ConfigurationError, nearest
from bfl.files import given_path, read_regular
from bfl.plugins import load_plugins, named_plugins, refuse_unnamed
from bfl.texts import few, from_json, from_toml

RUN = "run.json"
"""File beside a run's ``config.toml``, which has all values: what of them somebody has given."""


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file.

    Raises:
        ConfigurationError: The file is missing or is not TOML.
    """
    try:
        return from_toml(path.read_bytes())
    except FileNotFoundError as error:
        guess = nearest(path.stem, [file.stem for file in path.parent.glob("*.toml")])
        hint = f"; did you mean '{path.with_name(f'{guess}.toml')}'?" if guess else ""
        raise ConfigurationError(f"{path}: there is no such file{hint}") from error
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigurationError(f"{path}: {error}") from error


def flatten(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Value]:
    """Return nested tables as dotted keys, as Flower does."""
    flat: dict[str, Value] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def read_run_config(texts: Iterable[str]) -> dict[str, Value]:
    """Return the values of ``--run-config`` arguments: each key=value pairs or a TOML file's path.

    Later arguments win. Of the ``config.toml`` in a run's folder, name and resume are not taken,
    nor values that nobody gave, so that a later ``strategy`` brings its own; see ``run_values``.
    """
    sources = [_file(text) or parse_pairs(text) for text in texts]
    pairs = [source for source in sources if not isinstance(source, Path)]
    plugins = next((text for text in map(named_plugins, reversed(pairs)) if text), "")
    values: dict[str, Value] = {}
    for source in sources:
        if isinstance(source, Path):
            source = read_config_file(source, plugins=plugins)
        values |= source
    return values


def _file(text: str) -> Path | None:
    if not text.strip().endswith(".toml"):
        return None
    try:
        path = given_path(text.strip(), "--run-config")
    except ConfigurationError:
        if "=" in text:  # pairs may be longer than a path
            return None
        raise
    return path if "=" not in text or path.is_file() else None


def read_config_file(path: Path, *, plugins: str = "") -> dict[str, Value]:
    """Return the values of a TOML file; see ``read_run_config``.

    The user names ``plugins`` in place of those of a run's folder, which are refused otherwise.
    """
    tables = read_toml(path)
    if is_study(tables):
        raise ConfigurationError(f"{path} is a study, not a run's configuration: bfl study {path}")
    values = flatten(tables)
    real, beside = path.resolve(), (RUN, "rounds.jsonl", "posterior.npz", "run-key")
    if real.name == "config.toml" and any((real.parent / name).exists() for name in beside):
        values = with_own_plugins(values, plugins, path)
    if path.name == "config.toml" and (path.parent / RUN).is_file():
        values = {key: value for key, value in values.items() if key not in ("name", "resume")}
        try:
            given = dict(from_json(read_regular(path.parent / RUN))["given"])
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise ConfigurationError(
                f"{path.parent / RUN}: it does not say what was given: {error}"
            ) from error
        # Not what stands there alone, such as plugins that nobody has looked at.
        values = run_values(values, {k: v for k, v in given.items() if k in values})
    return values


def with_own_plugins(values: Mapping[str, Any], plugins: str, path: Path) -> dict[str, Any]:
    """Return the configuration of a run's folder with the plugins that the user names, if any.

    Raises:
        ConfigurationError: It names plugins, and the user none; or an earlier bfl has made it.
    """
    if not plugins:
        refuse_unnamed(named_plugins(values), str(path))
    load_plugins(plugins)
    if gone := sorted(values.keys() - default_values().keys()):
        raise ConfigurationError(
            f"{path.parent} was made by an earlier bfl: it can be read, and not gone on with; keys "
            f"that there are no more: {few(gone)}"
        )
    own = {"plugins": plugins} if plugins else {}
    return {key: value for key, value in values.items() if key != "plugins"} | own


def run_values(complete: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what repeats a run: what was given, and what would not follow from it today.

    It keeps its closing, as a run for which nobody names one closes by default.
    """
    kept = {k: v for k, v in given.items() if k not in ("name", "resume")}
    kept.update({k: v for k, v in complete.items() if k in kept or k == "closing"})
    try:
        today = resolve(kept, check_data=False).values
    except ConfigurationError:  # which is said when it is resolved to be made
        return {**kept, **complete}
    return {**kept, **{k: v for k, v in complete.items() if k not in today or today[k] != v}}


def is_study(tables: Mapping[str, Any]) -> bool:
    """Return whether a TOML file's tables are those of a study."""
    return bool(tables.keys() & {"base", "axes", "rows", "extends"})
