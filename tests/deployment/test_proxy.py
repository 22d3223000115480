"""The server's door: the calls of nodes pass as they are, and nothing else does."""

import ast
import asyncio
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from federation_folders import signed
from flwr.supercore.error import FlowerError
from flwr.supernode import fleet_http_client

from bfl.deployment import proxy
from bfl.deployment.authority import new_key, openssh_public
from bfl.deployment.client_list import Client, ClientList
from bfl.deployment.proxy import KnownCallers, proxy_app

LIMIT = proxy.CALL_BYTES
CALL = b"/v1/fleet/pull-messages"


@dataclass
class SuperLink:
    """Answers whatever reaches it, and remembers that."""

    reached: list[httpx.Request] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    away: bool = False

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.away:
            raise httpx.ConnectError("it is not there")
        self.reached.append(request)
        self.bodies.append(await request.aread())
        return httpx.Response(
            401,
            headers={"content-type": "application/x-protobuf", "connection": "close", "x-a": "b"},
            stream=httpx.ByteStream(b"answer"),
        )


def call(
    superlink: SuperLink,
    path: bytes = CALL,
    *,
    method: str = "POST",
    body: Sequence[bytes] = (b"body",),
    headers: dict[str, str] | None = None,
    query: bytes = b"",
    proven: bool = True,
) -> tuple[int, dict[bytes, bytes], bytes]:
    """Return status, headers and body that a caller gets, whose path is as raw as it gets."""
    # A list is taken from as it is read.
    pieces = body if isinstance(body, list) else list(body)
    events: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not pieces:  # the caller waits for the answer
            await asyncio.Event().wait()
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def send(event: Any) -> None:
        events.append(event)

    async def run() -> None:
        transport = httpx.MockTransport(superlink)
        async with httpx.AsyncClient(base_url="https://superlink", transport=transport) as client:
            scope = {
                "type": "http",
                "http_version": "1.1",
                "method": method,
                "scheme": "https",
                "path": unquote(path.decode("latin-1")),
                "raw_path": path,
                "query_string": query,
                "root_path": "",
                "headers": [(k.encode(), v.encode()) for k, v in (headers or {}).items()],
                "server": ("door", 8443),
            }
            app = proxy_app(client, lambda *_: "key" if proven else None, lambda *_: None)
            await app(scope, receive, send)

    asyncio.run(run())
    start = events[0]
    return (
        start["status"],
        dict(start["headers"]),
        b"".join(event.get("body", b"") for event in events[1:]),
    )


def test_a_nodes_call_passes_as_it_is() -> None:
    superlink = SuperLink()
    sent = {"content-type": "application/x-protobuf", "flwr-signature": "s", "accept-encoding": "x"}
    status, headers, body = call(superlink, body=[b"bo", b"dy"], headers=sent)
    assert (status, body) == (401, b"answer")
    assert headers[b"content-type"] == b"application/x-protobuf"
    assert headers[b"x-a"] == b"b"
    assert b"connection" not in headers
    [reached] = superlink.reached
    assert reached.url == "https://superlink/v1/fleet/pull-messages"
    assert superlink.bodies == [b"body"]
    assert {name: reached.headers[name] for name in sent} == sent


def test_all_calls_of_a_registered_node_pass() -> None:
    """Those of Flower's own client for nodes; keys are registered by the operator alone."""
    refused = {"/v1/fleet/register-node", "/v1/fleet/unregister-node"}
    source = ast.parse(inspect.getsource(fleet_http_client))
    texts = [str(node.value) for node in ast.walk(source) if isinstance(node, ast.Constant)]
    calls = {text for text in texts if text.startswith("/v1/fleet/")}
    assert len(calls) == 12
    assert refused < calls
    for path in calls:
        expected = 404 if path in refused else 401
        assert call(SuperLink(), path.encode())[0] == expected, path


@pytest.mark.parametrize(
    "path",
    [
        b"/",
        b"/health",
        b"/docs",
        b"/openapi.json",
        b"/v1/control/start-run",
        b"/v1/control/register-node",
        b"/v1/runtime/acquire-task",
        b"/v1/fleet/",
        b"/v1/fleet/unknown",
        b"/v1/fleet/pull-messages/",
        b"/v1/fleet/../control/start-run",
        b"/v1/fleet/%2e%2e/control/start-run",
        b"/v1/fleet/..%2fcontrol%2fstart-run",
        b"/v1/fleet//pull-messages",
        b"//v1/fleet/pull-messages",
        b"/v1/fleet/pull%2dmessages",
        b"/V1/FLEET/pull-messages",
        b"/v1/fleet/pull-messages;/../../control/start-run",
        b"/v1/fleet/pull-messages\n",
        b"/v1/fleet/pull-messages\x00",
        b"https://superlink/v1/control/start-run",
    ],
)
def test_nothing_else_passes(path: bytes) -> None:
    superlink = SuperLink()
    status, _, body = call(superlink, path)
    assert status == 404
    assert body in (b"", b"Not Found")
    assert not superlink.reached


METHODS = ("GET", "HEAD", "ODD")


@pytest.mark.parametrize(
    ("given", "statuses"),
    [
        *(({"method": method}, (404, 405)) for method in METHODS),
        ({"query": b"a=b"}, (404,)),
        ({"headers": {"content-length": str(LIMIT + 1)}}, (413,)),
        ({"headers": {"content-length": "-1"}}, (413,)),
    ],
)
def test_no_other_method_query_or_length_passes(
    given: dict[str, Any], statuses: tuple[int, ...]
) -> None:
    superlink = SuperLink()
    assert call(superlink, **given)[0] in statuses
    assert not superlink.reached


def test_what_turns_out_too_large_is_cut_off() -> None:
    """Without a length, or with a false one, the bytes are counted, and the rest is not read."""
    superlink = SuperLink()
    pieces = [b"x" * (LIMIT // 3) for _ in range(100)]
    assert call(superlink, body=pieces)[0] == 413
    assert len(pieces) > 90
    assert not superlink.bodies
    assert call(superlink, body=[b"x" * LIMIT])[0] == 401
    assert superlink.bodies == [b"x" * LIMIT]


def test_whoever_says_where_a_call_comes_from_is_not_believed() -> None:
    superlink = SuperLink()
    false = {"x-forwarded-for": "127.0.0.1", "forwarded": "for=127.0.0.1", "host": "127.0.0.1"}
    call(superlink, headers={**false, "transfer-encoding": "chunked"})
    [reached] = superlink.reached
    assert reached.headers["host"] == "superlink"
    assert not {"x-forwarded-for", "forwarded"} & set(reached.headers)


def test_a_superlink_that_starts_anew_is_unavailable() -> None:
    assert call(SuperLink(away=True))[0] == 503


@pytest.mark.parametrize("name", ["push-object", "push-messages", "pull-messages"])
def test_only_a_clients_call_may_be_large(name: str) -> None:
    path = f"/v1/fleet/{name}".encode()
    most = proxy.MOST_BYTES.get(name, LIMIT)
    for length, status in ((most, 401), (most + 1, 413)):
        superlink = SuperLink()
        announced = {"content-length": str(length)}
        assert call(superlink, path, headers=announced)[0] == status
        assert len(superlink.reached) == (status == 401)


def test_the_superlink_does_not_hear_of_strangers() -> None:
    """It reads a request as a whole before it asks for a signature; here the body is not read."""
    superlink, pieces = SuperLink(), [b"x"] * 3
    assert call(superlink, b"/v1/fleet/activate-node", proven=False)[0] == 412
    status, headers, body = call(superlink, body=pieces, proven=False)
    assert (status, headers[b"connection"]) == (401, b"close")
    # In the form in which a SuperNode shows it.
    assert FlowerError.from_json(body.decode()) is not None
    assert len(pieces) == 3
    assert not superlink.reached


def test_a_client_of_the_list_is_known_by_its_signature(tmp_path: Path) -> None:
    path, now = tmp_path / "clients.toml", datetime.now(UTC)
    own, other = new_key(), new_key()
    listed = ClientList(
        num_partitions=1,
        clients=(Client(name="a", partition_id=0, public_key=openssh_public(own.public_key())),),
    )
    listed.write(path)
    known = KnownCallers(path)
    headers = signed(own)
    assert known(headers, now) == listed.clients[0].public_key
    assert not known({}, now)
    assert not known(signed(other), now)
    # Another's key with one's own signature, and the other way round.
    assert not known({**signed(other), "flwr-public-key": headers["flwr-public-key"]}, now)
    assert not known({**headers, "flwr-timestamp": now.isoformat()}, now)
    assert not known(headers, now + timedelta(minutes=6))
    for name in ("flwr-public-key", "flwr-signature", "flwr-timestamp"):
        for wrong in ("", "?", "é", "eA==", "x" * 10**6):
            assert not known({**headers, name: wrong}, now), (name, wrong)
    listed.without("a").write(path)
    assert not known(headers, now)
