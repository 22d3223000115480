"""Which of a network's parameters travel; the others are a client's own head.

- ``base``: what such a choice is, and the registry ``shared_parameters``.
- every other module: one choice.
"""

from bfl.learning.shared.base import Division, SharedParameters, shared_parameters

__all__ = ["Division", "SharedParameters", "shared_parameters"]
