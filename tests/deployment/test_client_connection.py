"""A client calls its server before anything starts: certificate, name and clock."""

from __future__ import annotations

import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.utils import formatdate
from pathlib import Path

import pytest
from federation_folders import HOSTS, NOW
from flower_processes import free_ports

from bfl.deployment import client, setup
from bfl.deployment.client import check_clock, run_client, wait_for_server
from bfl.deployment.private_files import FederationFolder
from bfl.deployment.processes import LOG, Processes
from bfl.deployment.settings import Identity, ServerSettings
from bfl.engine.flower.flower_process import LET_IN
from bfl.errors import DataError, RunError


@contextmanager
def server(
    folder: Path, port: int = 0, host: str = "127.0.0.1", ahead: float = 0.0, body: str = ""
) -> Iterator[int]:
    """Answer one call with TLS, by a clock that is ahead; give the port."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")

    def answer() -> None:
        called, _ = listening.accept()
        with suppress(OSError), context.wrap_socket(called, server_side=True) as connection:
            connection.recv(1000)
            date = formatdate(time.time() + ahead, usegmt=True)
            answer = f"HTTP/1.1 404 No\r\nDate: {date}\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall((answer + body).encode())
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
    other = setup.init(tmp_path / "other", ServerSettings(hosts=HOSTS), "1", NOW)
    # This machine as well, and in no certificate.
    for host, folder in (("127.0.0.2", made / "server"), ("127.0.0.1", other.server)):
        refused = pytest.raises(DataError, match=f"client a: the certificate of {host}")
        with server(made / "server", host=host) as port, refused:
            wait_for_server(caller(port, host), folder / "ca.crt", print)


def test_a_clock_that_flower_does_not_take_is_refused(made: Path) -> None:
    refused = pytest.raises(
        DataError, match=r"client a: this machine's clock is 3[56]\d\d s behind"
    )
    with server(made / "server", ahead=3600.0) as port, refused:
        wait_for_server(caller(port), made / "server" / "ca.crt", print)
    for far in (5.0, -301.0):
        with pytest.raises(DataError, match=r"client a: this machine's clock is \d+ s"):
            check_clock("client a", far)
    for near in (3.9, 0.0, -299.0):
        check_clock("client a", near)


class NotLetIn(Processes):
    """In the place of a SuperNode: prints what one prints that is let in late, and ends."""

    def start(self, name: str, *words: str | Path) -> None:
        line = "print(os.environ['BFL_CLIENT'] + ': ' + text)"
        code = f"import os, sys; print('Flower')\nfor text in sys.argv[1:]: {line}"
        super().start(name, sys.executable, "-c", code, "not yet", LET_IN)

    def check(self) -> None:
        for process in self._started.values():
            process.wait()
        (self._work / "looks").open("a").write("x")
        if (self._work / "looks").stat().st_size > 1:
            super().check()


def test_a_clients_terminal_gets_its_lines_of_the_log(
    federation: FederationFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "wait_for_server", lambda *_: None)
    monkeypatch.setattr(client, "Processes", NotLetIn)
    monkeypatch.setattr(client.warm.Tasks, "next", lambda _: None)
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / LOG).write_text("client client-0: of an earlier start\n")
    printed = list[str]()
    with pytest.raises(RunError, match="the SuperNode of client client-0 has ended"):
        run_client(federation.client("client-0"), tmp_path / "state", printed.append)
    assert "has partition" not in printed[0]
    assert printed[1] == "client client-0: not yet"
    assert "client client-0: has partition 0 of 3" in printed[2]


def test_a_server_that_comes_later_is_waited_for(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said at once and after ever longer times. The SuperLink's port is no server's."""
    monkeypatch.setattr(client, "CALL_INTERVAL", 0.02)
    monkeypatch.setattr(client, "ANSWER_PATIENCE", 0.2)
    (port,), said = free_ports(1), list[str]()
    words = (caller(port), made / "server" / "ca.crt", said.append)
    waiting = threading.Thread(target=wait_for_server, args=words, daemon=True)
    waiting.start()
    time.sleep(1.5)
    assert 2 <= len(said) <= 4  # and not at each call
    with server(made / "server", port, body="{}"):
        time.sleep(0.3)
    assert waiting.is_alive()
    with server(made / "server", port):
        waiting.join(10.0)
    assert not waiting.is_alive()
    assert all(f"127.0.0.1:{port}" in line for line in said)
