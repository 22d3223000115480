"""What a part of a method is: what it keeps, sends and folds, on the server and on a client.

- ``part``: the two halves of a part, and the numbers and declarations they work with.
"""

from bfl.federation.parts.part import (
    GREATEST_BESIDE,
    Arrays,
    Counts,
    DeclaredArray,
    Part,
    Trained,
)

__all__ = ["GREATEST_BESIDE", "Arrays", "Counts", "DeclaredArray", "Part", "Trained"]
