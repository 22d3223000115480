"""Signatures under clients' own keys, checked by a list of clients that the node holds itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA384

from bfl.deployment.client_list import ClientList
from bfl.deployment.node_keys import openssh_public
from bfl.errors import ConfigurationError, ProtocolError

_SCHEME = ec.ECDSA(SHA384())


class ListedIdentity:
    """A client that signs with its key, and knows the keys of the clients in a list.

    Args:
        key: Its key.
        keys: The public keys, in OpenSSH's format, by partition id.
    """

    def __init__(self, key: ec.EllipticCurvePrivateKey, keys: Mapping[int, str]) -> None:
        self._key = key
        self._keys = keys

    @classmethod
    def read(cls, key: Path, clients: Path, partition_id: int) -> ListedIdentity:
        """Return who a client is by its key and its own copy of the list of clients.

        Args:
            key: The file with its private key.
            clients: The file with the list, ``clients.toml``.
            partition_id: The partition that it plays.

        Raises:
            ConfigurationError: A file is not there or cannot be read, or the list has another key
                for this partition.
        """
        try:
            private = serialization.load_ssh_private_key(key.read_bytes(), None)
        except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise ConfigurationError(
                f"node configuration: signing-key is {key}: not a private key in OpenSSH's format "
                "without a password"
            ) from error
        keys = {each.partition_id: each.public_key for each in ClientList.read(clients).clients}
        if not isinstance(private, ec.EllipticCurvePrivateKey) or (
            keys.get(partition_id) != openssh_public(private.public_key())
        ):
            raise ConfigurationError(
                f"node configuration: the list {clients} has another key than {key} for partition "
                f"{partition_id}, which this node plays"
            )
        return cls(private, keys)

    def sign(self, text: bytes) -> bytes:
        """Return the client's signature under a text: ECDSA with SHA-384."""
        return self._key.sign(text, _SCHEME)

    def check(self, client: int, text: bytes, signature: bytes) -> None:
        """Raise unless a text is signed by the client of a partition.

        Raises:
            ProtocolError: It is not, or the list has nobody for that partition.
        """
        line = self._keys.get(client)
        if line is None:
            raise ProtocolError(f"client {client} is not in this client's own list of clients")
        public = serialization.load_ssh_public_key(line.encode())
        assert isinstance(public, ec.EllipticCurvePublicKey)  # as the list was checked for
        try:
            public.verify(signature, text, _SCHEME)
        except InvalidSignature as error:
            raise ProtocolError(
                f"the keys of client {client} are not signed with the key that this client's own "
                "list of clients has for it"
            ) from error
