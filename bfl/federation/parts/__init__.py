"""What a part of a method is: what it keeps, sends and folds, on the server and on a client.

- ``part``: the two halves of a part, and the numbers and declarations they work with.
"""

from bfl.federation.parts.part import Arrays, Counts, DeclaredArray, Part, Trained

__all__ = ["Arrays", "Counts", "DeclaredArray", "Part", "Trained"]
