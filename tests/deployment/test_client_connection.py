"""A client calls its server before anything starts: certificate, name and clock."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from email.utils import formatdate
from pathlib import Path

import pytest
from federation_folders import HOSTS, NOW
from flower_processes import free_ports

from bfl.deployment import client, setup
from bfl.deployment.client import check_connection, wait_for_server
from bfl.deployment.settings import Identity, ServerSettings
from bfl.errors import DataError


@contextmanager
def server(
    folder: Path, port: int = 0, ahead: float = 0.0, host: str = "127.0.0.1"
) -> Iterator[int]:
    """Answer one call with TLS, by a clock that is ahead; give the port."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")

    def answer() -> None:
        called, _ = listening.accept()
        try:
            with context.wrap_socket(called, server_side=True) as connection:
                connection.recv(1000)
                date = formatdate(time.time() + ahead, usegmt=True)
                answer = f"HTTP/1.1 404 Not Found\r\nDate: {date}\r\nContent-Length: 0\r\n\r\n"
                connection.sendall(answer.encode())
        except OSError:  # the caller has ended the handshake
            called.close()

    with socket.create_server((host, port)) as listening:
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            thread.join()


def caller(port: int, host: str = "127.0.0.1") -> Identity:
    return Identity(name="a", server=host, port=port, partition_id=0, num_partitions=1)


@pytest.mark.parametrize(
    ("ahead", "host", "known", "named"),
    [
        (3600.0, "127.0.0.1", True, r"clock is 3[56]\d\d s behind"),
        (-3600.0, "127.0.0.1", True, r"clock is 3[56]\d\d s ahead"),
        (
            0.0,
            "127.0.0.2",
            True,
            r"not hold.*127\.0\.0\.2",
        ),  # this machine as well, and in no certificate
        (0.0, "127.0.0.1", False, "certificate"),  # of another authority
        (0.0, "127.0.0.1", True, ""),
    ],
)
def test_a_server_is_taken_by_its_clock_name_and_authority(
    made: Path, tmp_path: Path, ahead: float, host: str, known: bool, named: str
) -> None:
    authority = made / "server" / "ca.crt"
    if not known:
        other = setup.init(tmp_path / "other", ServerSettings(hosts=HOSTS), 1, NOW)
        authority = other.server / "ca.crt"
    refused = pytest.raises(DataError, match=f"client a: .*{named}") if named else nullcontext()
    with server(made / "server", ahead=ahead, host=host) as port, refused:
        assert check_connection(caller(port, host), authority) is None


def test_a_server_that_does_not_speak_tls_is_refused(made: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            called, _ = listening.accept()
            with called:
                called.recv(1000)
                called.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(DataError, match=r"client a: 127\.0\.0\.1:\d+ does not speak TLS"):
            check_connection(caller(listening.getsockname()[1]), made / "server" / "ca.crt")
        thread.join()


@pytest.mark.parametrize("ahead", [0.0, -3600.0])
def test_a_server_that_comes_later_is_looked_at_then(
    made: Path, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    monkeypatch.setattr(client, "CALL_INTERVAL", 0.05)
    (port,), said = free_ports(1), list[str]()
    found: list[BaseException] = []

    def wait() -> None:
        try:
            wait_for_server(caller(port), made / "server" / "ca.crt", said.append)
        except DataError as error:
            found.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.3)
    assert waiting.is_alive()
    with server(made / "server", port, ahead):
        waiting.join(10.0)
    assert not waiting.is_alive()
    assert len(said) == 1  # and not at each call
    assert "does not answer yet" in said[0]
    assert [("ahead of" in str(error)) for error in found] == ([True] if ahead else [])
