"""Pages that scripts write: what stands between two marks is made anew."""

from __future__ import annotations

from collections.abc import Iterable


def section_written(text: str, name: str, lines: Iterable[str]) -> str:
    """Return a page with new lines between ``<!-- NAME -->`` and ``<!-- end of NAME -->``."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    head, _, rest = text.partition(begin)
    _, found, tail = rest.partition(end)
    if not found:
        raise ValueError(f"the page has no '{begin}' with '{end}' after it")
    return "\n".join([f"{head}{begin}", "", *lines, "", end]) + tail
