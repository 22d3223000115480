"""Clients have no model of their own."""

from __future__ import annotations

from bfl.learning.personalizations.base import Personalization, personalizations


@personalizations.register("none")
class NoPersonalization(Personalization):
    """Clients train their copy of the global model and nothing else."""
