"""Connections to the server's door: what of them is bounded, and who is let through."""

import asyncio
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from federation_folders import NOW, signed
from flower_processes import free_ports, wait_for

from bfl.deployment import connections, setup
from bfl.deployment.connections import Door
from bfl.deployment.settings import ServerSettings

CALL = b"/v1/fleet/pull-messages"


async def taken(sources: Sequence[str], signed: bool) -> list[int]:
    """Return which of the connections from some addresses, made in this order, stay open."""
    door = Door.listening("127.0.0.1", 0)
    server = await asyncio.start_server(lambda *_: asyncio.sleep(60), sock=door)
    callers = []
    for source in sources:
        own = (source, 0)
        callers.append(await asyncio.open_connection(*door.getsockname(), local_addr=own))
        await asyncio.sleep(0.01)
        if signed:
            door.signed(callers[-1][1].get_extra_info("sockname"), "key")
    await asyncio.sleep(0.05)
    stay = [number for number, (reader, _) in enumerate(callers) if not reader.at_eof()]
    for _, writer in callers:
        writer.close()
    server.close()
    return stay


@pytest.mark.parametrize(
    ("sources", "stay", "signed"),
    [
        ([1] * 5, [2, 3, 4], False),
        # Of all together, the oldest one of the address that has most makes room.
        ([1, 2, 2, 2, 3, 4, 4], [0, 3, 4, 5, 6], False),
        ([1] * 5, [2, 3, 4], True),
        ([1, 2, 3, 4, 5, 6], [3, 4, 5], True),
    ],
)
def test_the_oldest_connection_makes_room(
    sources: list[int], stay: list[int], signed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "OF_AN_ADDRESS", 3)
    monkeypatch.setattr(connections, "OF_A_CLIENT", 3)
    monkeypatch.setattr(connections, "STRANGERS", 5)
    addresses = [f"127.0.0.{number}" for number in sources]
    assert asyncio.run(taken(addresses, signed)) == stay


@pytest.mark.parametrize(("signed", "stay"), [(False, []), (True, [0])])
def test_a_strangers_connection_ends(
    signed: bool, stay: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STRANGERS_SECONDS", 0.03)
    assert asyncio.run(taken(["127.0.0.1"], signed)) == stay


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int, dict[str, str]]]:
    """Return the port and the process of a door before no SuperLink, and a client's signature."""
    port, superlink = free_ports(2)
    settings = ServerSettings(hosts=("localhost",), port=port, superlink_port=superlink)
    folder = setup.init(tmp_path_factory.mktemp("door") / "f", settings, "1", NOW)
    process = subprocess.Popen([sys.executable, "-m", "bfl.deployment.proxy", str(folder.server)])
    key = load_ssh_private_key((folder.client("client-0") / "client.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    try:
        wait_for(lambda: answered(port, {}) == 401, 30)
        yield port, process.pid, signed(key)
    finally:
        process.kill()
        process.wait()


def answered(port: int, headers: dict[str, str]) -> int:
    """Return the status that a caller gets; 0: there is nobody."""
    try:
        url = f"https://localhost:{port}{CALL.decode()}"
        return httpx.post(url, headers=headers, verify=ANYBODY, trust_env=False).status_code
    except httpx.ConnectError:
        return 0


ANYBODY = ssl._create_unverified_context()


def connected(port: int, tls: bool = True) -> socket.socket:
    """Return a connection of somebody who trusts whoever answers."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=10)
    return ANYBODY.wrap_socket(plain) if tls else plain


def resident(process: int) -> int:
    """Return the megabytes that a process has in memory."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) // 1024


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


@pytest.mark.parametrize("what", ENDLESS)
def test_what_does_not_end_is_cut_off(what: str, door: tuple[int, int, dict[str, str]]) -> None:
    """Whoever sends it, a client of the list here, and reads no answer; others are answered."""
    port, process, proof = door
    before = resident(process)
    begin, more = ENDLESS[what]
    lines = "".join(f"{name}: {value}\r\n" for name, value in proof.items()).encode()
    with connected(port) as caller:
        caller.settimeout(3)
        with suppress(OSError):  # cut off, or not read any further
            caller.sendall(begin.replace(b"Host: x\r\n", b"Host: x\r\n" + lines))
            for _ in range(20):
                caller.sendall(more)
        assert answered(port, proof) == 503
    assert resident(process) - before < 40


HELD = {
    "tcp": (False, b""),
    "tls": (True, b""),
    "half-a-handshake": (False, b"\x16\x03\x01\x02\x00\x01"),
    "half-a-header": (True, POST),
    "half-a-body": (True, POST + b"Content-Length: 60000\r\n\r\n" + b"a" * 59000),
}


@pytest.mark.parametrize("what", HELD)
def test_who_holds_connections_locks_nobody_out(
    what: str, door: tuple[int, int, dict[str, str]]
) -> None:
    port, process, proof = door
    held = []
    try:
        tls, begin = HELD[what]
        for _ in range(2 * connections.OF_AN_ADDRESS):
            held.append(connected(port, tls))
            with suppress(OSError):  # it has been answered
                held[-1].sendall(begin)
        assert answered(port, proof) == 503
        wait_for(lambda: open_files(process) < connections.OF_AN_ADDRESS + 40, 5)
    finally:
        for each in held:
            each.close()
    wait_for(lambda: open_files(process) < 40, 5)
    assert answered(port, proof) == 503


def open_files(process: int) -> int:
    return len(list(Path(f"/proc/{process}/fd").iterdir()))
