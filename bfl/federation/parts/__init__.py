"""Parts of a method: what they keep, send and fold, on the server and on a client.

- ``part``: the two halves of a part, and the numbers and declarations they work with.
- ``replies``: what either half sends, and what a client keeps, held to what is declared.
"""

from bfl.federation.parts.part import (
    GREATEST_BESIDE,
    Arrays,
    Counts,
    DeclaredArray,
    Part,
    Trained,
    check_broadcast,
    check_concluded,
    check_received,
)

__all__ = [
    "GREATEST_BESIDE",
    "Arrays",
    "Counts",
    "DeclaredArray",
    "Part",
    "Trained",
    "check_broadcast",
    "check_concluded",
    "check_received",
]
