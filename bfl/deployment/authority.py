"""The certificate authority of a federation, the server's certificate, and clients' key pairs."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bfl.deployment.private_files import check_private, write_private
from bfl.errors import ConfigurationError, DataError
from bfl.files import write_atomically

AUTHORITY_DAYS, SERVER_DAYS = 3650, 365
CLOCK_TOLERANCE = timedelta(minutes=5)
"""Tolerance for a clock that is behind the signing machine's."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Names of the server for its own processes, in each certificate."""

KEY, CERTIFICATE = "ca.key", "ca.crt"

_LABEL = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)", re.IGNORECASE)


@dataclass(frozen=True)
class Authority:
    """Certificate authority of a federation: clients trust what it signs, and nothing else."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def create(cls, now: datetime) -> Authority:
        """Return a new authority."""
        key, name = new_key(), _name("bfl federation authority")
        certificate = (
            _builder(name, name, key.public_key(), now, now + timedelta(days=AUTHORITY_DAYS))
            # It signs servers, and no further authorities.
            .add_extension(x509.BasicConstraints(True, 0), True)
            .add_extension(_usage("key_cert_sign", "crl_sign"), True)
            .sign(key, hashes.SHA384())
        )
        return cls(key, certificate)

    @classmethod
    def load(cls, folder: Path) -> Authority:
        """Return the authority in a folder."""
        check_private(folder / KEY, "authority")
        return cls(load_private_key(folder / KEY), load_certificate(folder / CERTIFICATE))

    def save(self, folder: Path) -> None:
        """Write key and certificate."""
        write_private(folder / KEY, private_pem(self.key))
        write_atomically(folder / CERTIFICATE, self.certificate.public_bytes(Encoding.PEM))

    def server_certificate(
        self,
        public_key: ec.EllipticCurvePublicKey,
        hosts: Sequence[str],
        now: datetime,
        days: int = SERVER_DAYS,
    ) -> x509.Certificate:
        """Return a server's certificate for its hosts; it ends with the authority's."""
        ends = min(now + timedelta(days=days), self.certificate.not_valid_after_utc)
        names = dict.fromkeys([*hosts, *LOOPBACK])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        # The first host in full may be too long for a common name, which nobody looks at.
        subject = _name("bfl federation server")
        return (
            _builder(subject, self.certificate.subject, public_key, now, ends)
            .add_extension(x509.SubjectAlternativeName(list(map(general_name, names))), False)
            .add_extension(x509.BasicConstraints(False, None), True)
            .add_extension(_usage("digital_signature"), True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
            .add_extension(issuer, False)
            .sign(self.key, hashes.SHA384())
        )


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a new private key; Flower takes elliptic curves of NIST only."""
    return ec.generate_private_key(ec.SECP384R1())


def general_name(host: str) -> x509.DNSName | x509.IPAddress:
    """Return a host as it stands in a certificate."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    labels = host.split(".")
    # Only a name may end in a label that is not a number.
    if len(host) > 253 or labels[-1].isdecimal() or not all(map(_LABEL.fullmatch, labels)):
        raise ConfigurationError(
            f"host {host!r} is neither a host name nor an IP address; allowed: for instance "
            "fed.example.org or 192.0.2.7, without a port"
        )
    return x509.DNSName(host.lower())


def load_certificate(path: Path) -> x509.Certificate:
    """Return the certificate in a PEM file."""
    try:
        return x509.load_pem_x509_certificate(_read(path))
    except ValueError as error:
        raise DataError(f"{path} is not a certificate: {error}") from error


def load_private_key(path: Path, *, openssh: bool = False) -> ec.EllipticCurvePrivateKey:
    """Return the private key in a PEM file, in OpenSSH's format or, unless it has to be, another.

    Args:
        openssh: Whether it has to be in OpenSSH's, as Flower reads its nodes' keys in no other.
    """
    pem = _read(path)
    is_openssh = b"OPENSSH" in pem.partition(b"\n")[0]
    load = serialization.load_ssh_private_key if is_openssh else serialization.load_pem_private_key
    try:
        key = load(pem, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise DataError(
            f"{path} is not the private key of an elliptic curve without a password"
        ) from error
    if openssh and not is_openssh:
        raise DataError(
            f"{path} is not in OpenSSH's format, the only one that Flower reads; "
            f"ssh-keygen -p -N '' -f {path} rewrites it"
        )
    return key


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def private_pem(
    key: ec.EllipticCurvePrivateKey, form: PrivateFormat = PrivateFormat.PKCS8
) -> bytes:
    """Return a private key without a password; Flower reads its nodes' keys as ``OpenSSH``."""
    return key.private_bytes(Encoding.PEM, form, serialization.NoEncryption())


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    now: datetime,
    ends: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_TOLERANCE)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _usage(*allowed: str) -> x509.KeyUsage:
    usages = (
        *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
        *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
    )
    return x509.KeyUsage(**{usage: usage in allowed for usage in usages})


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def check_dates(certificate: x509.Certificate, node: str, what: str, now: datetime) -> None:
    """Refuse a certificate that is not valid now, by the clock of this machine."""
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if begins <= now <= ends:
        return
    state = "is over" if now > ends else "has not begun"
    raise DataError(
        f"{node}: {what} {state}: it is valid from {begins:%Y-%m-%d %H:%M} to {ends:%Y-%m-%d %H:%M}"
        f" UTC, and here it is {now:%Y-%m-%d %H:%M}; set the clock, or bfl federation renew"
    )


def openssh_public(key: ec.EllipticCurvePublicKey) -> str:
    """Return a public key as one line in OpenSSH's format, without a comment."""
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode("ascii")


def checked_public(text: str) -> str:
    """Return a public key's line without its comment, or raise ConfigurationError."""
    try:
        key = serialization.load_ssh_public_key(text.strip().encode())
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise ValueError("not of an elliptic curve")
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigurationError(
            f"its public-key ({text.strip()[:24]!r}…) is not one of an elliptic curve in OpenSSH's "
            "format; allowed: what ssh-keygen -t ecdsa -b 384 writes to the file .pub"
        ) from error
    return openssh_public(key)
