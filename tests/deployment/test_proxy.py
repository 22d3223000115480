"""The server's door: the calls of nodes pass as they are, and nothing else does."""

import ast
import asyncio
import inspect
import re
import socket
import ssl
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from federation_folders import NOW, signed
from flower_processes import free_ports, wait_for
from flwr.supercore.error import FlowerError
from flwr.supernode import fleet_http_client
from installed import executable

from bfl.deployment import proxy, setup
from bfl.deployment.authority import new_key, openssh_public
from bfl.deployment.client_list import Client, ClientList
from bfl.deployment.proxy import BoundedProtocol, KnownCallers, proxy_app
from bfl.deployment.settings import ServerSettings

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
            app = proxy_app(client, lambda *_: proven)
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


# Who calls ------------------------------------------------------------------------------------


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
    assert known(headers, now)
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


# What strangers can hold ----------------------------------------------------------------------


def test_the_oldest_strangers_connection_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends also by itself, after a while; one on which a client has signed a call stays."""
    monkeypatch.setattr(proxy, "STRANGERS", 2)
    monkeypatch.setattr(proxy, "STRANGERS_SECONDS", 0.2)

    async def staying() -> tuple[list[bool], bool]:
        loop = asyncio.get_running_loop()
        config = proxy.uvicorn.Config(proxy_app, http=BoundedProtocol)  # type: ignore[arg-type]
        state = proxy.uvicorn.server.ServerState()
        server = await loop.create_server(
            lambda: BoundedProtocol(config=config, server_state=state, app_state={}),
            "127.0.0.1",
            0,
        )
        callers = []
        for number in range(4):
            callers.append(await asyncio.open_connection(*server.sockets[0].getsockname()))
            await asyncio.sleep(0.01)
            if not number:
                BoundedProtocol.keep(callers[0][1].get_extra_info("sockname"))
        stay = [not reader.at_eof() for reader, _ in callers]
        await asyncio.sleep(0.3)
        later = [not reader.at_eof() for reader, _ in callers]
        for _, writer in callers:
            writer.close()
        server.close()
        return stay, later == [True, False, False, False]

    assert asyncio.run(staying()) == ([True, False, True, True], True)


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int, dict[str, str]]]:
    """Return the port and the process of a door before no SuperLink, and a client's signature."""
    port, superlink = free_ports(2)
    settings = ServerSettings(hosts=("localhost", "::1"), port=port, superlink_port=superlink)
    folder = setup.init(tmp_path_factory.mktemp("door") / "f", settings, 1, NOW)
    process = subprocess.Popen([executable("bfl"), "federation", "proxy", str(folder.server)])
    key = load_ssh_private_key((folder.client("client-0") / "client.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    try:
        wait_for(lambda: answered(port, {}) == 401, 30)
        yield port, process.pid, signed(key)
    finally:
        process.kill()
        process.wait()


def answered(port: int, headers: dict[str, str], host: str = "localhost") -> int:
    """Return the status that a caller gets; 0: there is nobody."""
    try:
        url = f"https://{host}:{port}{CALL.decode()}"
        return httpx.post(url, headers=headers, verify=ANYBODY, trust_env=False).status_code
    except httpx.ConnectError:
        return 0


ANYBODY = ssl._create_unverified_context()
POST = b"POST " + CALL + b" HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "lines": (POST, b"a:b\r\n" * 200_000),
    "path": (b"POST /", b"a" * 2**20),
    "size-of-a-chunk": (CHUNKED + b"1;", b"a" * 2**20),
    "trailers": (CHUNKED + b"0\r\n", b"a:b\r\n" * 200_000),
    "body": (POST + b"Content-Length: 1000000000\r\n\r\n", b"a" * 2**20),
    "requests": (b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 40_000),
}


def resident(process: int) -> int:
    """Return the megabytes that a process has in memory."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) // 1024


@pytest.mark.parametrize("what", ENDLESS)
def test_what_does_not_end_is_cut_off(what: str, door: tuple[int, int, dict[str, str]]) -> None:
    """Whoever sends it, a client of the list here, and reads no answer; others are answered, on
    both of the server's addresses."""
    port, process, proof = door
    before = resident(process)
    begin, more = ENDLESS[what]
    lines = "".join(f"{name}: {value}\r\n" for name, value in proof.items()).encode()
    with ANYBODY.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=10)) as caller:
        caller.settimeout(3)
        with suppress(OSError):  # cut off, or not read any further
            caller.sendall(begin.replace(b"Host: x\r\n", b"Host: x\r\n" + lines))
            for _ in range(20):
                caller.sendall(more)
        assert answered(port, proof) == answered(port, proof, "[::1]") == 503
    assert resident(process) - before < 40
