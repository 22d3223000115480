"""A federation's folder for tests, made once, and a copy for each test that changes it."""

from __future__ import annotations

from datetime import UTC, datetime

from bfl.deployment.client_list import ClientList
from bfl.deployment.folder import FederationFolder

HOSTS = ("fed.example.org", "192.0.2.7")
NOW = datetime.now(UTC)


def listed(federation: FederationFolder) -> ClientList:
    """Return the list of clients."""
    return ClientList.read(federation.server / "clients.toml")
