"""Check the server's certificate before anything starts: chain, names and dates."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from bfl.deployment.authority import general_name
from bfl.errors import DataError


def certified_hosts(certificate: x509.Certificate) -> list[str]:
    """Return the host names and addresses of a certificate."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def check_dates(certificate: x509.Certificate, node: str, what: str, now: datetime) -> None:
    """Refuse a certificate that is not valid now, by the clock of this machine.

    Raises:
        DataError: It is over or has not begun; the message names the node and the clock.
    """
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if begins <= now <= ends:
        return
    state = "is over" if now > ends else "has not begun"
    raise DataError(
        f"{node}: {what} {state}: it is valid from {begins:%Y-%m-%d %H:%M} to "
        f"{ends:%Y-%m-%d %H:%M} UTC, and this machine's clock says {now:%Y-%m-%d %H:%M}; set the "
        "clock, or make a new certificate: bfl federation renew"
    )


def check_server_certificate(
    certificate: x509.Certificate,
    authority: x509.Certificate,
    hosts: Sequence[str],
    now: datetime,
) -> None:
    """Refuse a server's certificate that clients would not accept.

    Args:
        certificate: The server's.
        authority: The authority's, which clients trust.
        hosts: The names and addresses by which clients call the server.
        now: The time.

    Raises:
        DataError: It is not valid now, is another authority's, or lacks a host.
    """
    check_dates(authority, "server", "the authority's certificate", now)
    check_dates(certificate, "server", "the server's certificate", now)
    policy = PolicyBuilder().store(Store([authority])).time(now)
    certified = certified_hosts(certificate)
    for host in hosts:
        name = general_name(host)
        if isinstance(name, x509.IPAddress):
            known = ipaddress.ip_address(host) in {
                ipaddress.ip_address(each) for each in certified if _is_address(each)
            }
        else:
            known = host.lower() in certified
        if not known:
            raise DataError(
                f"server: host {host} is not in its certificate, which names "
                f"{', '.join(certified)}; make one that does: bfl federation renew DIR --host NAME"
            )
        assert isinstance(name, x509.DNSName | x509.IPAddress)
        try:
            policy.build_server_verifier(name).verify(certificate, [])
        except VerificationError as error:
            raise DataError(
                f"server: its certificate is not of the authority beside it ({error}); take all "
                "files of the server's folder from one bfl federation init or renew"
            ) from error


def check_key_of(certificate: x509.Certificate, public_key: object) -> None:
    """Refuse a certificate of another key.

    Raises:
        DataError: The server's key is not the one that the certificate is for.
    """
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if certificate.public_key().public_bytes(*form) != public_key.public_bytes(*form):  # type: ignore[attr-defined]
        raise DataError("server: server.key is not the key that server.crt is for")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
