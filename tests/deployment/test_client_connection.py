"""A client calls its server before anything starts: by its certificate and its name."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from federation_folders import HOSTS, NOW
from flower_processes import free_ports

from bfl.deployment import client, setup
from bfl.deployment.client import wait_for_server
from bfl.deployment.settings import Identity, ServerSettings
from bfl.errors import DataError


@contextmanager
def server(folder: Path, port: int = 0, host: str = "127.0.0.1") -> Iterator[int]:
    """Answer one call with TLS; give the port."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")

    def answer() -> None:
        called, _ = listening.accept()
        with suppress(OSError), context.wrap_socket(called, server_side=True) as connection:
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
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


def test_a_server_of_another_name_or_authority_is_refused(made: Path, tmp_path: Path) -> None:
    other = setup.init(tmp_path / "other", ServerSettings(hosts=HOSTS), 1, NOW)
    # This machine as well, and in no certificate.
    for host, folder in (("127.0.0.2", made / "server"), ("127.0.0.1", other.server)):
        refused = pytest.raises(DataError, match=f"client a: the certificate of {host}")
        with server(made / "server", host=host) as port, refused:
            wait_for_server(caller(port, host), folder / "ca.crt", print)


def test_a_server_that_comes_later_is_waited_for(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "CALL_INTERVAL", 0.05)
    (port,), said = free_ports(1), list[str]()
    authority = made / "server" / "ca.crt"
    waiting = threading.Thread(target=wait_for_server, args=[caller(port), authority, said.append])
    waiting.start()
    time.sleep(0.3)
    assert waiting.is_alive()
    with server(made / "server", port):
        waiting.join(10.0)
    assert not waiting.is_alive()
    assert len(said) == 1  # and not at each call
    assert "does not answer yet" in said[0]
