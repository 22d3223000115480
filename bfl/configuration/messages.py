"""Messages about refused values: the key, what was given, what is allowed."""

from __future__ import annotations

from collections.abc import Iterable

import pydantic

from bfl.errors import nearest
from bfl.registry import kebab

_WRONG_TYPE = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": 'a string in "quotes"',
    "finite_number": "a finite number",
    "extra_forbidden": "no key of this name",
}
_LIMITS = (("ge", "at least"), ("gt", "greater than"), ("le", "at most"), ("lt", "less than"))


def unknown_key(key: str, allowed: Iterable[str]) -> str:
    """Return the message for a key that nothing declares."""
    guess = nearest(key, allowed)
    hint = f"; did you mean '{guess}'?" if guess else "; `bfl keys` lists all of them"
    return f"unknown key '{key}'{hint}"


def refused_values(error: pydantic.ValidationError) -> list[str]:
    """Return one line per refused value: key, value, and what is allowed."""
    lines = []
    for row in error.errors():
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
