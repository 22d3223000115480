"""What clients say reaches no terminal as it is, and none of it passes for the server's."""

import pytest

from bfl.federation.client_metrics import CONTINUED, MOST_CHARACTERS, neutralize


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("plain: é, 'x' {7}", "plain: é, 'x' {7}"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("a\rb\x85c\u2028d\u202ee", r"a\rb\x85c\u2028d\u202ee"),
        ("one\n[   1.0 s] round 7/7", "one\n    | [   1.0 s] round 7/7"),
    ],
)
def test_text_is_shown_and_not_obeyed(said: str, shown: str) -> None:
    assert neutralize(said) == shown
    assert neutralize(shown) == shown


def test_it_is_cut() -> None:
    shown = neutralize("\n" * 10 * MOST_CHARACTERS)
    assert len(shown) < MOST_CHARACTERS + 10
    assert neutralize(shown) == shown
    assert all(line.startswith(CONTINUED) for line in shown.split("\n")[1:-1])
