"""A client's key pair: what it proves by that it is who it is. The list holds the public half."""

from __future__ import annotations

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from bfl.errors import ConfigurationError


def openssh_private(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key as Flower reads it: OpenSSH's format, without a password."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )


def openssh_public(key: ec.EllipticCurvePublicKey) -> str:
    """Return a public key as one line in OpenSSH's format, without a comment."""
    return key.public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    ).decode("ascii")


def checked_public(text: str) -> str:
    """Return a public key as ``openssh_public`` writes it, whatever its comment.

    Args:
        text: The key's line, as ``ssh-keygen -t ecdsa -b 384`` writes it.

    Raises:
        ConfigurationError: It is not a public key that Flower takes.
    """
    allowed = "allowed: one made by ssh-keygen -t ecdsa -b 384, the file that ends in .pub"
    try:
        key = serialization.load_ssh_public_key(text.strip().encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigurationError(
            f"its public-key is not one in OpenSSH's format ({text.strip()[:24]!r}…); {allowed}"
        ) from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ConfigurationError(
            f"its public-key is not of an elliptic curve, and Flower takes no other; {allowed}"
        )
    return openssh_public(key)
