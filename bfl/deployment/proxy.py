"""The only door of a server: TLS, and nothing but the calls that nodes make.

Whoever reaches the port of Flower's SuperLink can register a key of their own and start runs. So it
listens on loopback, and this proxy is what others reach. nginx, HAProxy and Caddy would need a
program beside them that knows Flower's signatures.
"""

from __future__ import annotations

import binascii
import re
import resource
import ssl
import sys
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
import uvicorn
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from bfl.deployment import connections
from bfl.deployment import private_files as names
from bfl.deployment.authority import openssh_public
from bfl.deployment.client_list import ClientList
from bfl.deployment.connections import Door
from bfl.deployment.settings import ServerSettings
from bfl.errors import BflError

CALL_BYTES = 2**16
"""Greatest size in bytes of most of a client's calls, which take less than 2 kB."""

MOST_BYTES = {"push-object": 2**24, "push-messages": 2**19}
"""Greatest size in bytes of a client's calls that hold more: arrays travel in pieces of 5 MB,
and a message takes some 100 bytes for each."""

UNKNOWN = b'{"code": 2004, "detail": "The call is not signed with a key of the list of clients."}'
"""To a caller that is not known to be a client, in the form in which a SuperNode shows it."""

TIMEOUT = httpx.Timeout(10.0, read=120.0, write=120.0)

# All calls of nodes but register-node and unregister-node: keys are registered by the operator.
ALLOWED = re.compile(
    rb"/v1/fleet/(activate-node|deactivate-node|send-node-heartbeat|pull-messages|push-messages|"
    rb"get-run|get-fab|push-object|pull-object|confirm-message-received)"
)

# Of one connection, not of the message (RFC 9110, section 7.6.1), or set anew.
_OF_THE_CONNECTION = {
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer"),
    *("transfer-encoding", "upgrade", "host", "content-length", "forwarded", "expect"),
}


CLOSE = {"connection": "close"}


def proxy_app(
    client: httpx.AsyncClient,
    signer: Callable[[Mapping[str, str], datetime], str | None],
    signed: Callable[[tuple[str, int], str], None],
) -> Starlette:
    """Return an application that hands clients' calls on, and refuses all else.

    Of strangers no body is read, neither here nor by the SuperLink. After a refusal the connection
    is closed.

    Args:
        client: Calls the SuperLink; it has its address.
        signer: Returns the key of the client that has signed a call, by its headers and the time.
        signed: Called with the address and port that a client's call comes from, and its key.
    """

    async def hand_on(request: Request) -> Response:
        # As it came: a decoded or normalized path may be another one than the SuperLink's.
        path = request.scope.get("raw_path", b"")
        call = ALLOWED.fullmatch(path)
        if request.method != "POST" or not call or request.url.query:
            # Flower takes 403 for the end of a run, and a node would hang.
            return _refuse(404)
        key = signer(request.headers, datetime.now(UTC))
        if key is None:
            # As the SuperLink: 401 ends a node that runs, and one that begins is told why.
            return _refuse(412 if call[1] == b"activate-node" else 401, UNKNOWN)
        if request.client:
            signed((request.client.host, request.client.port), key)
        most_bytes = MOST_BYTES.get(call[1].decode(), CALL_BYTES)
        announced = request.headers.get("content-length", "0")
        if not announced.isdecimal() or int(announced) > most_bytes:
            return _refuse(413)
        try:
            forwarded = client.build_request(
                "POST",
                path.decode("ascii"),
                headers=_of_the_message(request.headers.items()),
                content=_limit(request, most_bytes),
            )
            answer = await client.send(forwarded, stream=True)
        except ClientDisconnect:
            return _refuse(400)
        except httpx.TransportError:  # it is being started anew; nodes ask again
            return _refuse(503)
        return StreamingResponse(
            _stream(answer),
            status_code=answer.status_code,
            headers=dict(_of_the_message(answer.headers.items())),
        )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with client:
            yield

    every_method = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"]
    everything = Route("/{path:path}", hand_on, methods=every_method)
    return Starlette(routes=[everything], lifespan=lifespan)


def serve(folder: Path) -> None:
    """Serve clients until the process is told to end."""
    settings = ServerSettings.read(folder / names.SETTINGS)
    trusted = ssl.create_default_context(cafile=str(folder / names.CA))
    # A connection here and one to the SuperLink for each caller.
    most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    client = httpx.AsyncClient(
        base_url=f"https://127.0.0.1:{settings.superlink_port}",
        verify=trusted,
        timeout=TIMEOUT,
        limits=httpx.Limits(max_connections=None),
        trust_env=False,
    )
    door = Door.listening(settings.listens, settings.port)
    config = uvicorn.Config(
        proxy_app(client, KnownCallers(folder / names.CLIENTS), door.signed),
        ssl_certfile=str(folder / names.SERVER_CERTIFICATE),
        ssl_keyfile=str(folder / names.SERVER_KEY),
        # Others neither take connections through the socket nor bound what they keep.
        loop="asyncio",
        http=connections.BoundedProtocol,
        ws="none",
        h11_max_incomplete_event_size=connections.HEADER_BYTES,
        backlog=connections.BACKLOG,
        timeout_keep_alive=connections.IDLE_SECONDS,
        # Strangers write no log.
        log_level="error",
        access_log=False,
        server_header=False,
        # Nobody is believed about where a call comes from.
        proxy_headers=False,
    )
    uvicorn.Server(config).run(sockets=[door])


def _refuse(status: int, body: bytes = b"") -> Response:
    return Response(body, status, CLOSE)


async def _limit(request: Request, most_bytes: int) -> AsyncIterator[bytes]:
    """Yield a request's bytes as they come; those of one without a length are counted."""
    count = 0
    async for piece in request.stream():
        count += len(piece)
        if count > most_bytes:
            raise HTTPException(413, headers=CLOSE)
        yield piece


async def _stream(answer: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in answer.aiter_raw():
            yield piece
    finally:
        await answer.aclose()


def _of_the_message(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [
        (name, value)
        for name, value in headers
        if name.lower() not in _OF_THE_CONNECTION and not name.lower().startswith("x-forwarded-")
    ]


PUBLIC_KEY, SIGNATURE, TIMESTAMP = "flwr-public-key", "flwr-signature", "flwr-timestamp"
"""The headers by which Flower's SuperNodes prove who they are."""

TOLERANCE = 305.0
"""Flower takes signed times that are up to so many seconds old; the SuperLink looks closer."""

MOST_CHARACTERS = 2000
"""Greatest number of characters of such a header."""


class KnownCallers:
    """Tells the clients of the list by the headers of their calls, before anything else is read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = 0
        self._keys: frozenset[str] = frozenset()

    def __call__(self, headers: Mapping[str, str], now: datetime) -> str | None:
        """Return the public key of the listed client that has signed a call; None: none has."""
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
            if abs((now - datetime.fromisoformat(given[2])).total_seconds()) > TOLERANCE:
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


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
