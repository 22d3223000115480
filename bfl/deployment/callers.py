"""Identify callers of the server's door: a client of the list, by its signature, or anybody."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from bfl.deployment.client_list import ClientList
from bfl.deployment.node_keys import openssh_public
from bfl.errors import BflError

PUBLIC_KEY, SIGNATURE, TIMESTAMP = "flwr-public-key", "flwr-signature", "flwr-timestamp"
"""The headers by which Flower's SuperNodes prove who they are."""

TOLERANCE = timedelta(seconds=305)
"""Flower takes signed times that are up to so old; the SuperLink looks more closely."""

MOST_CHARACTERS = 2000
"""Greatest number of characters of such a header."""


class KnownCallers:
    """Tells the clients of the list by the headers of their calls, before anything else is read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = 0
        self._keys: frozenset[str] = frozenset()

    def __call__(self, headers: Mapping[str, str], now: datetime) -> str | None:
        """Return the public key of the client of the list that has signed a call; None: none has.

        Args:
            headers: The call's headers, with names in small letters.
            now: The time.
        """
        given = [headers.get(name, "") for name in (PUBLIC_KEY, SIGNATURE, TIMESTAMP)]
        if not all(0 < len(text) <= MOST_CHARACTERS for text in given):
            return None
        try:
            key = serialization.load_pem_public_key(b64decode(given[0], validate=True))
            if not isinstance(key, ec.EllipticCurvePublicKey):
                return None
            public = openssh_public(key)
            if public not in self._listed():
                return None
            if abs(now - datetime.fromisoformat(given[2])) > TOLERANCE:
                return None
            signature = b64decode(given[1], validate=True)
            key.verify(signature, given[2].encode("ascii"), ec.ECDSA(hashes.SHA256()))
        except (ValueError, TypeError, binascii.Error, UnsupportedAlgorithm, InvalidSignature):
            return None
        return public

    def _listed(self) -> frozenset[str]:
        """Return the listed public keys; while the list cannot be read, those of before."""
        try:
            changed = self._path.stat().st_mtime_ns
            if changed != self._seen:
                clients = ClientList.read(self._path).clients
                self._keys = frozenset(client.public_key for client in clients)
                self._seen = changed
        except (BflError, OSError):
            pass  # the server's process says so
        return self._keys
