"""Texts of others: too many levels are refused wherever JSON or TOML is read."""

import json

import pytest

from bfl.texts import MOST_LEVELS, counted, from_json, from_toml


def levels(number: int) -> str:
    return "[" * number + "]" * number


def test_as_many_levels_as_are_said() -> None:
    assert from_json(levels(MOST_LEVELS)) == json.loads(levels(MOST_LEVELS))
    for read, text in ((from_json, "{}"), (from_toml, "a = {}")):
        with pytest.raises(ValueError, match="levels"):
            read(text.format(levels(MOST_LEVELS + 1)))


def test_one_is_no_plural() -> None:
    found = [counted(number, "round") for number in (0, 1, 1.5, 2_000_000)]
    assert found == ["0 rounds", "1 round", "1.5 rounds", "2000000 rounds"]
