"""Keys that two clients agree on, what is sealed with them, and signatures under lasting ones."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from bfl.errors import ProtocolError

SECRET = 16
"""Bytes of a secret of which everything else is derived: those that Shamir's shares are made of."""

DIGEST = 32
"""Bytes of a digest of a secret."""

OWN_MASK, MASKING = "own mask", "masking key"
"""The secrets of a client that are shared, as the digests of their shares name them."""

_NONCE = 12


class Identity(Protocol):
    """A client's own lasting key, and what it knows of those of others."""

    def sign(self, text: bytes) -> bytes:
        """Return the client's signature under a text; empty where it has no key."""

    def check(self, client: int, text: bytes, signature: bytes) -> None:
        """Raise ProtocolError unless a text is signed by the client of that number."""


class Unsigned:
    """Clients without lasting keys, as in a simulation: the server's word is taken."""

    def sign(self, text: bytes) -> bytes:
        """Return nothing."""
        return b""

    def check(self, client: int, text: bytes, signature: bytes) -> None:
        """Take whatever there is."""


@dataclass(frozen=True)
class KeyPair:
    """A key pair of X25519, made of a secret of 16 bytes."""

    secret: bytes

    @cached_property
    def _private(self) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(derive_key(self.secret, "private key"))

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return self._private.public_key().public_bytes_raw()

    def agree_on_key(self, public: bytes, purpose: str) -> bytes:
        """Return the key of 32 bytes that this pair and another one's public key agree on.

        Raises:
            ProtocolError: The public key is none.
        """
        try:
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError as error:
            raise ProtocolError(f"a public key is none: {error}") from error
        return derive_key(shared, purpose)


def text_to_sign(label: str, client: int, encryption: bytes, masking: bytes) -> bytes:
    """Return what a client signs of its keys of a round."""
    return f"bfl secure aggregation, {label}, client {client}".encode() + encryption + masking


def mask_between(label: str, task_digest: bytes) -> str:
    """Return the purpose of the key of which two clients draw the mask that cancels in their sum.

    Args:
        task_digest: The digest of what a client was told; with another one the masks do not cancel.
    """
    return f"mask, {label}, {task_digest.hex()}"


def new_secret() -> bytes:
    """Return a secret from the system's randomness."""
    return os.urandom(SECRET)


def derive_key(secret: bytes, purpose: str) -> bytes:
    """Return a key of 32 bytes for one purpose, by HKDF with SHA-256."""
    info = f"bfl secure aggregation, {purpose}".encode()
    return HKDF(SHA256(), 32, salt=None, info=info).derive(secret)


def digest_of(secret: bytes) -> bytes:
    """Return what a secret is known again by, 32 bytes that say nothing else of it."""
    return derive_key(secret, "digest")


def digest_of_share(share: bytes, owner: int, holder: int, what: str, label: str) -> bytes:
    """Return what a share of an owner's secret is known again by, as ``digest_of`` does.

    Args:
        what: Which of the secrets: ``OWN_MASK`` or ``MASKING``.
    """
    return derive_key(share, f"digest of the share of {owner} for {holder}, {what}, {label}")


def seal_box(key: bytes, text: bytes, context: str) -> bytes:
    """Return a text that only who has the key (32 bytes) can read or change, by AES-GCM.

    Args:
        context: What it is, from whom and to whom; who opens it has to say the same.
    """
    nonce = os.urandom(_NONCE)
    return nonce + AESGCM(key).encrypt(nonce, text, context.encode())


def open_box(key: bytes, box: bytes, context: str) -> bytes:
    """Return the text of which ``seal_box`` has made a box.

    Raises:
        ProtocolError: It was changed on its way, or is another one.
    """
    try:
        return AESGCM(key).decrypt(box[:_NONCE], box[_NONCE:], context.encode())
    except (InvalidTag, ValueError) as error:
        raise ProtocolError(f"{context}: not what was sealed") from error
