"""Clients are sent the whole global posterior."""

from __future__ import annotations

from bfl.federation.broadcasts.base import Broadcast, broadcasts


@broadcasts.register("posterior")
class PosteriorBroadcast(Broadcast):
    """The whole global posterior.

    Source: Fischer et al. (2024), Algorithm 1.
    """
