"""Text from clients, made safe for the server to print."""

from __future__ import annotations

from bfl.texts import printable

MOST_CHARACTERS = 20_000

CONTINUED = "    | "
"""Begins every line of a client's text but the first: none of its lines passes for the server's."""


def neutralized(text: str) -> str:
    r"""Return a client's text without what a terminal obeys, and with its later lines marked.

    What is not printable, such as ESC, stands as its escape; it is cut after 20,000 characters.
    Text that has been neutralized stays as it is.

    Example:
        >>> print(neutralized("no\x1b[2Jdata\nround 7/7  accuracy 1.0"))
        no\x1b[2Jdata
            | round 7/7  accuracy 1.0
    """
    first, *others = text[: MOST_CHARACTERS + 1].split("\n")
    marked = [each if each.startswith(CONTINUED) else f"{CONTINUED}{each}" for each in others]
    shown = "\n".join(printable(each) for each in (first, *marked))
    return shown if len(shown) <= MOST_CHARACTERS else f"{shown[:MOST_CHARACTERS]} (cut)"
