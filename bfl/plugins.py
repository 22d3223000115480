"""Parts of your own from outside this package: files and modules that register components.

A configuration names them, ``plugins = "my_parts.py, acme.weightings"``; an installed distribution
may instead declare a module under the entry points ``bfl.plugins``, whose parts are there without
being named. A resolved configuration has the SHA-256 of each, ``my_parts.py#sha256=...``: whoever
resolves it, such as a client on another machine, takes that content and no other.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bfl.errors import ConfigurationError, nearest, public
from bfl.files import given_path
from bfl.registry import Component, Registry

GROUP = "bfl.plugins"
"""The entry points by which an installed distribution has its parts found."""

_SHA = "#sha256="


@dataclass(frozen=True)
class Plugin:
    """A file or a module that registers parts.

    Attributes:
        place: The file's absolute path, or the module's name.
        digest: The SHA-256 of its content; of a package: of all its modules.
    """

    place: str
    digest: str
    module: str

    def __str__(self) -> str:
        return f"{self.place}{_SHA}{self.digest}"

    def defines(self, component: type[Component]) -> bool:
        """Return whether a component is one of its."""
        return f"{component.__module__}.".startswith(f"{self.module}.")


@dataclass(frozen=True)
class PluginPolicy:
    """Policy of a machine: where it finds plugins, and which of them it takes.

    Attributes:
        folder: Where files are, by their names; None: where their paths say.
        restricted: Whether only files in ``folder`` are taken, and modules that installed
            distributions declare: whoever names plugins is somebody else, and importing one runs
            its code.
        named_by: The file in a folder of results that names them, which somebody else may have
            written; only those are taken that the user has named as well. Empty: the user does.
    """

    folder: str | None = None
    restricted: bool = False
    named_by: str = ""


ANY_PLUGIN = PluginPolicy()
"""Whoever names the plugins may run code here anyway."""

_lock = threading.RLock()
# By module: a file of one name and content is one, wherever it lies.
_active: dict[str, Plugin] = {}
_named_by_user: set[Plugin] = set()
_put_aside: dict[str, list[tuple[Registry, type[Component]]]] = {}  # type: ignore[type-arg]


def activate(text: str, policy: PluginPolicy = ANY_PLUGIN) -> tuple[Plugin, ...]:
    """Have the parts of the named plugins, and of no others, in the registries.

    Installed distributions' parts are there in any case.

    Args:
        text: Files (``*.py``) and names of modules, with commas between them, each with or without
            its digest.
        policy: Where they are on this machine, and which of them it takes.

    Returns:
        The plugins.

    Raises:
        ConfigurationError: One is not on this machine, is not taken here, has another digest, or
            cannot be loaded.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    with _lock:
        wanted = [_found(word, policy) for word in dict.fromkeys(words)]
        modules = {plugin.module for plugin in wanted}
        for plugin in [p for module, p in _active.items() if module not in modules]:
            _put_aside[plugin.module] = [
                (registry, component)
                for registry in Registry.known
                for component in registry.withdraw(plugin.defines)
            ]
            del _active[plugin.module]
        for plugin in wanted:
            if plugin.module not in _active and plugin not in installed_plugins():
                _take_up(plugin)
                _active[plugin.module] = plugin
        if policy == ANY_PLUGIN:
            _named_by_user.update(wanted)
        return tuple(wanted)


def named_plugins(values: Mapping[str, Any]) -> str:
    """Return what the key ``plugins`` of a configuration says, if it is a string."""
    text = values.get("plugins", "")
    return text if isinstance(text, str) else ""


def used_plugins(named: Iterable[Plugin], used: Iterable[type[Component]]) -> tuple[Plugin, ...]:
    """Return the named plugins, and those installed ones that define a component that is used."""
    components = list(used)
    installed = [p for p in installed_plugins() if any(map(p.defines, components))]
    return tuple(dict.fromkeys([*named, *installed]))


@cache
def installed_plugins() -> tuple[Plugin, ...]:
    """Return the plugins that installed distributions declare, imported, sorted by name.

    Raises:
        ConfigurationError: One cannot be imported; the message names the distribution.
    """
    plugins = []
    for entry in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda e: e.module):
        try:
            importlib.import_module(entry.module)
        except Exception as error:
            name = entry.dist.name if entry.dist else "a distribution"
            raise ConfigurationError(
                f"{name} declares the plugin {entry.module}, which cannot be imported: "
                f"{type(error).__name__}: {error}"
            ) from error
        plugins.append(Plugin(entry.module, _digest_of_module(entry.module), entry.module))
    return tuple(plugins)


def _found(word: str, policy: PluginPolicy) -> Plugin:
    place, _, expected = word.partition(_SHA)
    if policy.named_by:
        return _of_the_user(place, expected, policy)
    plugin = (_file if place.endswith(".py") else _module)(place, policy)
    if expected and expected != plugin.digest:
        error = ConfigurationError(
            f"plugins: {_shown(plugin.place, policy)} on this machine has the SHA-256 "
            f"{plugin.digest[:16]}…, and {expected[:16]}… is expected; allowed: the same content "
            f"everywhere, or '{place}' without '{_SHA}', which takes what is there when the run "
            "begins"
        )
        raise public(error)
    return plugin


def _of_the_user(place: str, expected: str, policy: PluginPolicy) -> Plugin:
    """Return the plugin of the user's that is the named one; nothing is imported to find out."""
    if not expected and place.endswith(".py") and Path(place).is_file():
        expected = _file(place, policy).digest
    for plugin in (*_named_by_user, *installed_plugins()):
        if plugin.digest == expected if expected else plugin.place == place:
            return plugin
    raise ConfigurationError(
        f"plugins: {policy.named_by} names {place!r}, whose code would run here, and it may be "
        f"somebody else's; allowed: name it yourself if you trust it, by --plugins {place!r}, by "
        f"plugins={place!r} in Python or by the key plugins in --run-config"
    )


def _file(place: str, policy: PluginPolicy) -> Plugin:
    path = given_path(place, "plugins")
    if policy.folder:
        path = given_path(policy.folder, "plugins-dir") / path.name
    elif policy.restricted:
        error = ConfigurationError(
            f"plugins: the run names {path.name}, and this node takes no files; allowed: one of "
            "that name in plugins-dir of the node's configuration, the folder of its own"
        )
        raise public(error)
    path = path.absolute()
    if not path.is_file():
        beside = [] if policy.restricted else path.parent.glob("*.py")
        guess = nearest(path.stem, [file.stem for file in beside])
        hint = f"; did you mean {path.with_stem(guess)}?" if guess else ""
        error = ConfigurationError(
            f"plugins: there is no file {_shown(path, policy)}{hint}; allowed: a file, the name of "
            "a module, or on a node the file of that name in plugins-dir of the node's "
            "configuration"
        )
        raise error if hint else public(error)  # a hint is of this machine
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    # Another content is another module, in a process that has met both.
    return Plugin(str(path), digest, f"bfl_plugin_{path.stem}_{digest[:16]}")


def _shown(place: str | Path, policy: PluginPolicy) -> str:
    """Return a plugin's place for a message, which a restricted node sends to somebody else."""
    return Path(place).name if policy.restricted else str(place)


def _module(name: str, policy: PluginPolicy) -> Plugin:
    if policy.restricted and name not in {plugin.module for plugin in installed_plugins()}:
        error = ConfigurationError(
            f"plugins: the run names the module '{name}', which this node does not import for it; "
            f"allowed: one that an installed distribution declares under the entry points {GROUP}, "
            "or a file in plugins-dir of the node's configuration"
        )
        raise public(error)
    return Plugin(name, _digest_of_module(name), name)


@cache
def _digest_of_module(name: str) -> str:
    """Return the SHA-256 of a module's file, or of all modules of a package, once a process."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not (spec.submodule_search_locations or spec.origin):
        raise ConfigurationError(
            f"plugins: there is no module '{name}' on this machine; allowed: a module that can be "
            "imported, or a file whose name ends in .py"
        )
    roots = [Path(root) for root in spec.submodule_search_locations or ()]
    files = [(p.relative_to(r).as_posix(), p) for r in roots for p in sorted(r.rglob("*.py"))]
    sha = hashlib.sha256()
    for relative, path in files or [("", Path(str(spec.origin)))]:
        sha.update(f"{relative}\0".encode() if relative else b"")
        sha.update(path.read_bytes())
    return sha.hexdigest()


def _take_up(plugin: Plugin) -> None:
    """Put a plugin's parts into the registries: imported, or as they were put aside."""
    aside = _put_aside.get(plugin.module)
    try:
        if aside is not None:
            for registry, component in aside:
                registry.register(component.name, aliases=component.aliases)(component)
            del _put_aside[plugin.module]
        elif plugin.place == plugin.module:
            importlib.import_module(plugin.module)
        elif plugin.module not in sys.modules:
            _execute(plugin)
    except Exception as error:
        for registry in Registry.known:
            registry.withdraw(plugin.defines)
        if aside is None:
            sys.modules.pop(plugin.module, None)
        told = str(error)
        for known in (plugin, *_active.values()):  # of files, where they are
            told = told.replace(known.module, known.place)
        kind = "" if isinstance(error, ConfigurationError) else f"{type(error).__name__}: "
        raise ConfigurationError(
            f"plugins: {plugin.place} cannot be loaded: {kind}{told}"
        ) from error


def _execute(plugin: Plugin) -> None:
    spec = importlib.util.spec_from_file_location(plugin.module, plugin.place)
    if spec is None or spec.loader is None:
        raise ImportError(f"{plugin.place} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[plugin.module] = module
    before = _parts_from_outside()
    spec.loader.exec_module(module)
    if _parts_from_outside() == before:
        raise ConfigurationError(
            "it registers no part; allowed: a file with a class under a decorator such as "
            '@pooling_rules.register("NAME")'
        )


def _parts_from_outside() -> int:
    """Return how many parts are registered that are none of bfl's own."""
    return sum(
        not component.__module__.startswith(registry.package)
        for registry in Registry.known
        for component in registry.registered()
    )
