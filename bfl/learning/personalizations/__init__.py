"""Personalizations: what model of its own a client has beside its copy of the global one.

- ``base``: what a personalization is, and the registry ``personalizations``.
- every other module: one personalization.
"""

from bfl.learning.personalizations.base import (
    BothModels,
    Personalization,
    PersonalModel,
    personalizations,
)

__all__ = ["BothModels", "PersonalModel", "Personalization", "personalizations"]
