"""Parts of your own from outside this package: files and modules that register components.

The user names them, ``plugins = "my_parts.py, acme.weightings"``, or an installed distribution
declares a module under the entry points ``bfl.plugins``. They stay for the life of the process.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
import threading
import zlib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from bfl.errors import ConfigurationError, public
from bfl.files import given_path, near_path
from bfl.registry import Component, Registry

GROUP = "bfl.plugins"
"""The entry points by which an installed distribution has its parts found."""


class Plugin(NamedTuple):
    """A file or a module that registers parts.

    Attributes:
        place: The file's absolute path, or the module's name.
        module: Its name, which depends on a file's name and content.
    """

    place: str
    module: str

    def defines(self, component: type[Component]) -> bool:
        """Return whether a component is one of its."""
        return f"{component.__module__}.".startswith(f"{self.module}.")


_lock = threading.RLock()
_loaded: dict[str, Plugin] = {}
"""Plugins of this process by module: a file of one name and content is one."""


def load_plugins(text: str, node_folder: str | None = None) -> tuple[Plugin, ...]:
    """Load the plugins that the key ``plugins`` names, files (``*.py``) and modules; return them.

    Args:
        node_folder: On a node whose plugins somebody else names, the folder of the files that may
            be loaded, by their names, beside installed plugins; empty: no file; None: any.
    """
    with _lock:
        return tuple(_load(word, node_folder) for word in _words(text))


def named_plugins(values: Mapping[str, Any]) -> str:
    """Return what the key ``plugins`` of a configuration says, if it is a string."""
    text = values.get("plugins", "")
    return text if isinstance(text, str) else ""


def refuse_unnamed(text: str, file: str) -> None:
    """Refuse plugins that only a run's file names, which may be somebody else's."""
    installed = {plugin.module for plugin in installed_plugins()}
    if not _loaded and [word for word in _words(text) if word not in installed]:
        raise ConfigurationError(
            f"plugins: {file} names {text!r}, whose code would run here, and it may be somebody "
            f"else's; allowed: name it yourself if you trust it, by --plugins {text!r} (in Python "
            f"by plugins={text!r})"
        )


def used_plugins(named: Iterable[Plugin], used: Iterable[type[Component]]) -> tuple[Plugin, ...]:
    """Return the named plugins, and those others here that define a component that is used."""
    components = list(used)
    here = (*installed_plugins(), *_loaded.values())
    return tuple(dict.fromkeys([*named, *(p for p in here if any(map(p.defines, components)))]))


@cache
def installed_plugins() -> tuple[Plugin, ...]:
    """Return the plugins that installed distributions declare, imported, sorted by name."""
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
        plugins.append(Plugin(entry.module, entry.module))
    return tuple(plugins)


def _words(text: str) -> list[str]:
    return [word.strip() for word in dict.fromkeys(text.split(",")) if word.strip()]


def _load(word: str, node_folder: str | None) -> Plugin:
    if word.endswith(".py"):
        path = _file(word, node_folder)
        version = zlib.crc32(path.read_bytes())
        plugin = Plugin(str(path), f"bfl_plugin_{path.stem}_{version:08x}")
    else:
        plugin = Plugin(word, word)
        if node_folder is not None and plugin not in installed_plugins():
            raise _refused_on_node(f"the module '{word}', which no distribution there declares")
    if plugin.module in _loaded or plugin in installed_plugins():
        return plugin
    for former in [each for each in _loaded.values() if each.place == plugin.place]:
        _unload(former)  # the file has been changed since
    try:
        if plugin.place == plugin.module:
            importlib.import_module(plugin.module)
        else:
            spec: Any = importlib.util.spec_from_file_location(plugin.module, plugin.place)
            sys.modules[plugin.module] = importlib.util.module_from_spec(spec)
            before = _parts_from_outside()
            spec.loader.exec_module(sys.modules[plugin.module])
            if _parts_from_outside() == before:
                raise ConfigurationError("it registers no part, as @pooling_rules.register would")
    except Exception as error:
        _unload(plugin)
        raise ConfigurationError(
            f"plugins: {plugin.place} cannot be loaded: {type(error).__name__}: {error}; allowed: "
            "a module that can be imported, or a file that ends in .py"
        ) from error
    _loaded[plugin.module] = plugin
    return plugin


def _parts_from_outside() -> int:
    every = ((registry, part) for registry in Registry.known for part in registry.classes())
    return sum(not part.__module__.startswith(registry.package) for registry, part in every)


def _file(word: str, node_folder: str | None) -> Path:
    path = given_path(word, "plugins")
    if node_folder:
        path = given_path(node_folder, "plugins-dir") / path.name
    path = path.absolute()
    if node_folder != "" and path.is_file():
        return path
    if node_folder is not None:
        raise _refused_on_node(f"{path.name}, and this node has no file of that name")
    raise ConfigurationError(
        f"plugins: there is no file {path}{near_path(path, path.parent.glob('*.py'))}; allowed: a "
        "file, or the name of a module"
    )


def _refused_on_node(named: str) -> ConfigurationError:
    problem = f"plugins: the run names {named}; allowed: a file in plugins-dir of the node's"
    return public(ConfigurationError(f"{problem} configuration, or entry points {GROUP}"))


def _unload(plugin: Plugin) -> None:
    for registry in Registry.known:
        registry.withdraw(plugin.defines)
    sys.modules.pop(plugin.module, None)
    _loaded.pop(plugin.module, None)
