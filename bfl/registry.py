"""Components that a word in the configuration picks: pooling rules, partitions, models and so on.

Each kind has a package (``bfl.aggregation.pooling``, ...) with a registry, which imports all
modules of the package when it is first used, so that a new file is found by being there:

    @pooling_rules.register("linear-pool", aliases=("lp",))
    class LinearPoolRule(PoolingRule):
        ...
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import threading
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar

import pydantic

from bfl.errors import ConfigurationError, unknown_name


def kebab(name: str) -> str:
    """Return the configuration's spelling of an attribute: ``prior_scale`` is ``prior-scale``."""
    return name.replace("_", "-")


STRICT = pydantic.ConfigDict(
    frozen=True,
    extra="forbid",
    strict=True,
    allow_inf_nan=False,
    alias_generator=kebab,
    populate_by_name=True,
)
"""Rules of reading configuration: no unknown keys, no wrong types, nothing that is not finite."""


class Component(pydantic.BaseModel):
    """Base of everything that a word in the configuration picks.

    A component's fields are its settings: a field ``population_size`` is the configuration key
    ``population-size``, typed, with a default, a range and a description. The registration sets
    ``name`` and ``aliases``.

    Attributes:
        behind_colon: The setting that may stand behind the name and a colon; empty: none.
        always_has: Properties that it has however it is set, see ``has``; likewise the other two.
    """

    model_config = pydantic.ConfigDict(**STRICT, use_attribute_docstrings=True)

    name: ClassVar[str] = ""
    aliases: ClassVar[tuple[str, ...]] = ()
    behind_colon: ClassVar[str] = ""
    always_has: ClassVar[frozenset[str]] = frozenset()
    always_requires: ClassVar[frozenset[str]] = frozenset()
    always_excludes: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def summary(cls) -> str:
        """Return the first line of the docstring: what the component is."""
        return (cls.__doc__ or "").strip().split("\n")[0]

    @classmethod
    @cache
    def setting_keys(cls) -> tuple[str, ...]:
        """Return the configuration keys that this component reads."""
        return tuple(kebab(field) for field in cls.model_fields)

    def has(self) -> frozenset[str]:
        """Return which properties of ``bfl.configuration.compatibility`` it has, as it is set."""
        return self.always_has

    def requires(self) -> frozenset[str]:
        """Return which properties the parts that it goes with must have."""
        return self.always_requires

    def excludes(self) -> frozenset[str]:
        """Return which properties no part that it goes with may have."""
        return self.always_excludes


C = TypeVar("C", bound=Component)


class Registry(Generic[C]):
    """The components of one kind, by name and alias.

    Args:
        kind: The configuration key that picks one.
        package: The package whose modules register them.
    """

    known: ClassVar[list[Registry[Any]]] = []

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        self._by_spelling: dict[str, type[C]] = {}
        self._discovered = False
        self._discovering: set[int] = set()
        Registry.known.append(self)

    def register(self, name: str, *, aliases: tuple[str, ...] = ()) -> Callable[[type[C]], type[C]]:
        """Return a class decorator that registers a component under a name and its aliases.

        Raises:
            ValueError: A spelling is taken by another component.
            TypeError: The class lacks a method that its kind requires.
        """

        def decorate(component: type[C]) -> type[C]:
            if not component.__module__.startswith(self.package):
                # Of two parts with one name it is the one from outside that is refused.
                self._discover()
            spellings = {_normalized(spelling) for spelling in (name, *aliases)}
            for spelling in spellings & self._by_spelling.keys():
                raise ValueError(
                    f"{self.kind} '{spelling}' is registered twice: by "
                    f"{self._by_spelling[spelling].__module__} and {component.__module__}; choose "
                    "another name"
                )
            if missing := sorted(getattr(component, "__abstractmethods__", ())):
                raise TypeError(
                    f"{self.kind} '{name}': the class {component.__name__} has no "
                    f"{', '.join(missing)}"
                )
            component.name, component.aliases = name, aliases
            self._by_spelling.update(dict.fromkeys(spellings, component))
            return component

        return decorate

    def get(self, spelling: str) -> type[C]:
        """Return the class of a name or an alias; a ConfigurationError names the nearest."""
        self._discover()
        if found := self._by_spelling.get(_normalized(spelling)):
            return found
        listed = f"bfl list {self.kind}"
        problem = unknown_name(self.kind, spelling, self._by_spelling, listed=listed)
        raise ConfigurationError(problem)

    def create(self, spelling: str, settings: Mapping[str, Any] | None = None) -> C:
        """Return a component with those of some configuration keys that it declares.

        Args:
            spelling: A name or an alias, and perhaps a colon and a setting (``behind_colon``).

        Raises:
            ConfigurationError: The spelling is unknown.
            pydantic.ValidationError: A setting has the wrong type or is out of range.
        """
        word, _, rest = spelling.partition(":")
        takes = bool(rest) and word in self and bool(self.get(word).behind_colon)
        component = self.get(word if takes else spelling)
        given = {k: v for k, v in (settings or {}).items() if k in component.setting_keys()}
        if rest:
            given[component.behind_colon] = rest.strip()
        return component(**given)

    def __contains__(self, spelling: str) -> bool:
        """Return whether a component has that name or alias."""
        self._discover()
        return _normalized(spelling) in self._by_spelling

    def classes(self) -> tuple[type[C], ...]:
        """Return the registered classes, sorted by name."""
        self._discover()
        found = dict.fromkeys(self._by_spelling.values())
        return tuple(sorted(found, key=lambda component: component.name))

    def names(self) -> tuple[str, ...]:
        """Return the registered names, sorted."""
        return tuple(component.name for component in self.classes())

    def spellings(self) -> tuple[str, ...]:
        """Return all names and aliases, sorted."""
        self._discover()
        return tuple(sorted(self._by_spelling))

    def withdraw(self, which: Callable[[type[C]], bool]) -> None:
        """Take out the components of which a function is true."""
        self._by_spelling = {s: c for s, c in self._by_spelling.items() if not which(c)}

    def _discover(self) -> None:
        """Import the modules of the package, and what installed distributions register."""
        me = threading.get_ident()
        # What is being imported may ask as well, and has what is there so far.
        if self._discovered or me in self._discovering:
            return
        self._discovering.add(me)
        try:
            # No lock but the import system's own: another thread that asks waits at the modules
            # that this one is importing, and one that is importing them already cannot deadlock.
            package = importlib.import_module(self.package)
            for module in pkgutil.iter_modules(package.__path__):
                importlib.import_module(f"{self.package}.{module.name}")
            # Parts of installed distributions are there without being named.
            importlib.import_module("bfl.plugins").installed_plugins()
            self._discovered = True
        except BaseException:
            # What modules have registered whose import has failed, they register again.
            for registry in Registry.known:
                registry.withdraw(lambda component: component.__module__ not in sys.modules)
            raise
        finally:
            self._discovering.discard(me)


def _normalized(spelling: str) -> str:
    return spelling.strip().lower().replace("_", "-")
