"""A federation's folder for tests, made once, and a copy for each test that changes it."""

from datetime import UTC, datetime
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.supercore.protobuf.client import ProtobufRequestContext
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from bfl.deployment.client_list import ClientList
from bfl.deployment.private_files import FederationFolder

HOSTS = ("fed.example.org", "192.0.2.7")
NOW = datetime.now(UTC)


def listed(federation: FederationFolder) -> ClientList:
    """Return the list of clients."""
    return ClientList.read(federation.server / "clients.toml")


def signed(key: ec.EllipticCurvePrivateKey) -> dict[str, str]:
    """Return the headers with which Flower's SuperNode signs a call."""
    request = httpx.Request("POST", "https://door/")
    context = ProtobufRequestContext("", Any, request)  # type: ignore[arg-type]
    NodeAuthHttpInterceptor(key, key.public_key()).intercept(context, lambda _: httpx.Response(200))
    return dict(request.headers)
