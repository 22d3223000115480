"""All keys that there are, what it is to give none, and key=value pairs and refusals of values."""

from __future__ import annotations

import functools
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pydantic
import tomli_w
from pydantic.fields import FieldInfo

from bfl.aggregation.pooling import pooling_rules
from bfl.configuration.component_slots import REGISTRIES, SLOTS
from bfl.configuration.keys import Keys
from bfl.errors import ConfigurationError, nearest, unknown_name
from bfl.presets import presets
from bfl.registry import Component, kebab
from bfl.texts import from_toml

Value = str | int | float | bool
"""A value of Flower's run configuration."""

UNSET = ""
"""The value of a key that is not given, unless it is one that may be given.

Flower fuses the values that pyproject.toml declares into the run's configuration before the
ServerApp sees it: any other value would look as if somebody had given it.
"""

NOT_GIVEN = "(not given)"
"""The same for a key whose default is the empty string, which a person may give."""


_WRONG_TYPE = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": 'a string in "quotes"',
    "finite_number": "a finite number",
    "extra_forbidden": "no key of this name",
}
_LIMITS = (("ge", "at least"), ("gt", "greater than"), ("le", "at most"), ("lt", "less than"))

_PAIR = re.compile(r"""([\w.-]+)\s*=\s*("(?:[^"\\]|\\.)*"|'[^']*'|[^\s"']+)""")


class Setting(NamedTuple):
    """A key, as one place declares it, for a reader or all."""

    key: str
    default: Value
    description: str
    type: str
    reader: str = ""


def given_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are given; the empty string is where it is a key's default."""
    defaults = default_values() if UNSET in values.values() else {}
    return {
        key: value
        for key, value in values.items()
        if value != NOT_GIVEN and (value != UNSET or defaults.get(key) == UNSET)
    }


def settings_of(component: type[Component]) -> dict[str, FieldInfo]:
    """Return the configuration keys that a component declares, with their fields.

    An architecture's depth is not among them: it is part of its word, as in ``resnet20``.
    """
    return {kebab(name): f for name, f in component.model_fields.items() if name != "depth"}


def settings() -> Iterator[Setting]:
    """Yield all settings: those of every run, the words that pick parts, and those of the parts."""
    for name, field in Keys.model_fields.items():
        yield _setting(kebab(name), field)
    for kind in SLOTS:
        yield Setting(kind.key, kind.default, kind.description, "str")
    for registry in REGISTRIES:
        for component in registry.classes():
            for key, field in settings_of(component).items():
                yield _setting(key, field, f"{registry.kind} {component.name}")


def _setting(key: str, field: FieldInfo, reader: str = "") -> Setting:
    kind: Any = field.annotation
    named = kind.__name__ if isinstance(kind, type) else str(kind).removeprefix("typing.")
    return Setting(key, field.default, " ".join((field.description or "").split()), named, reader)


def default_values() -> dict[str, Value]:
    """Return every key with its default.

    Where parts that read one key have different defaults, it is that of the kind's default part if
    it reads the key, and of the first that does otherwise.
    """
    # Found once for all configurations of a process, until a plugin registers more.
    return dict(_default_values(tuple(registry.classes() for registry in REGISTRIES)))


@functools.lru_cache(maxsize=1)
def _default_values(registered: tuple[tuple[type[Component], ...], ...]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for setting in settings():
        values.setdefault(setting.key, setting.default)
    for kind in SLOTS:
        for component in kind.pick(kind.default, {}):
            fields = settings_of(type(component))
            values.update({key: field.default for key, field in fields.items()})
    return values


def unset_values() -> dict[str, Value]:
    """Return every key as pyproject.toml declares it: not given."""
    return {key: NOT_GIVEN if v == UNSET else UNSET for key, v in default_values().items()}


class NamedStrategy(NamedTuple):
    """A named choice of values for keys."""

    name: str
    values: Mapping[str, Any]
    only_a_rule: bool = False


NO_STRATEGY = NamedStrategy("", {})


def default_strategy(given: Container[str]) -> str:
    """Return the strategy of a configuration that gives these keys, and no strategy.

    Federated averaging has point weights; who names a pooling rule or an inference wants Gaussians.
    """
    parts = "pooling" in given or "inference" in given
    return "weighted-sum-of-normals" if parts else str(default_values()["strategy"])


def named_strategy(word: str) -> NamedStrategy:
    """Return what a word names, a preset or a pooling rule.

    Raises:
        ConfigurationError: It names neither, or both.
    """
    is_preset, is_rule = word in presets, word in pooling_rules
    if is_preset and is_rule:
        raise ConfigurationError(
            f"strategy '{word}' is both the preset '{presets.get(word).name}' and the pooling rule "
            f"'{pooling_rules.get(word).name}'; allowed: a name of one of them"
        )
    if is_preset:
        preset = presets.get(word)
        return NamedStrategy(preset.name, preset.values)
    if is_rule:
        name = pooling_rules.get(word).name
        return NamedStrategy(name, {"pooling": name}, only_a_rule=True)
    spellings = {*presets.spellings(), *pooling_rules.spellings()}
    raise ConfigurationError(unknown_name("strategy", word, spellings, listed="bfl list strategy"))


def format_pairs(values: Mapping[str, Value]) -> str:
    """Return values as ``parse_pairs`` reads them.

    Example:
        >>> format_pairs({"strategy": "conflation", "rounds": 3, "resume": True})
        'strategy="conflation" rounds=3 resume=true'
    """
    lines = (tomli_w.dumps({"value": value}).strip() for value in values.values())
    pairs = zip(values, lines, strict=True)
    return " ".join(f"{key}={line.removeprefix('value = ')}" for key, line in pairs)


def parse_pairs(text: str) -> dict[str, Value]:
    """Return the values of ``key=value`` pairs, separated by spaces; values are TOML.

    Example:
        >>> parse_pairs('strategy="conflation" rounds=3 alpha=0.5')
        {'strategy': 'conflation', 'rounds': 3, 'alpha': 0.5}

    Raises:
        ConfigurationError: Something is not a pair, or a value is not TOML.
    """
    rest = _PAIR.sub("", text).strip(" ,\t\n")
    if rest:
        raise ConfigurationError(
            f"run configuration: {rest!r} is not a key=value pair; "
            """expected for instance 'strategy="conflation" rounds=3'"""
        )
    values: dict[str, Value] = {}
    for key, value in _PAIR.findall(text):
        try:
            parsed = from_toml(f"value = {value}")["value"]
        except ValueError as error:
            quotes = "" if value[0] in "\"'" else f'; a string needs quotes: {key}="{value[:200]}"'
            raise ConfigurationError(
                f"run configuration: {key}={value[:200]} has no TOML value ({error}){quotes}"
            ) from None
        if key in values:
            raise ConfigurationError(f"run configuration: {key} is given twice")
        values[key] = parsed
    return values


def unknown_key(key: str, allowed: Iterable[str]) -> str:
    """Return the message for a key that nothing declares."""
    guess = nearest(key, allowed)
    hint = f"; did you mean '{guess}'?" if guess else "; `bfl keys` lists all of them"
    return f"unknown key '{key}'{hint}"


def refused_values(error: pydantic.ValidationError) -> list[str]:
    """Return one line per refused value: key, value, and what is allowed."""
    lines = []
    for row in error.errors():
        if row["type"] == "default_factory_not_called":
            continue  # what it would be made of is refused itself
        # A default that is refused has the attribute's name.
        key = ".".join(kebab(str(part)) for part in row["loc"]) or "configuration"
        kind, context = row["type"], row.get("ctx", {})
        limits = [f"{words} {context[name]}" for name, words in _LIMITS if name in context]
        allowed = _WRONG_TYPE.get(kind) or " and ".join(limits) or row["msg"]
        if kind in ("literal_error", "value_error"):
            allowed = str(context["expected" if kind == "literal_error" else "error"])
        missing = kind == "missing"
        lines.append(
            f"{key} is missing" if missing else f"{key} is {row['input']!r}; allowed: {allowed}"
        )
    return lines
