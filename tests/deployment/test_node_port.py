"""Who listens on a SuperNode's port in its place is not spoken to, and hands out no tasks."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from flwr.proto.runtime_pb2 import AcquireTaskResponse

from bfl.deployment import client
from bfl.engine.flower.warm import NodePort, Task, Tasks

SECRET = b"0123456789abcdef" * 4


class HandsOutTasks(BaseHTTPRequestHandler):
    """Answers every call with a task."""

    def do_POST(self) -> None:
        """Answer."""
        self.server.calls.append(dict(self.headers))  # type: ignore[attr-defined]
        task: Any = AcquireTaskResponse(token="token")
        task.task.fab_hash = "bundle"
        answer = task.SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def listening(certified: Path | None) -> Iterator[HTTPServer]:
    """Listen on a port of loopback, with the certificate in a folder or in plain text."""
    with HTTPServer(("127.0.0.1", 0), HandsOutTasks) as server:
        server.calls = []  # type: ignore[attr-defined]
        if certified:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(
                certified / client.RUNTIME_CERTIFICATE, certified / client.RUNTIME_KEY
            )
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return certified(tmp_path / "own")


def certified(folder: Path) -> Path:
    folder.mkdir()
    client._certify_port(folder, datetime.now(UTC))
    return folder


def next_task(server: HTTPServer, own: Path) -> Task | None:
    port = NodePort(f"127.0.0.1:{server.server_address[1]}", own / client.RUNTIME_CA)
    return Tasks(port, SECRET).next()


def test_the_own_supernode_hands_out_tasks(own: Path) -> None:
    with listening(own) as server:
        assert next_task(server, own) == Task("token", "bundle")


def test_who_has_taken_its_port_does_not(own: Path, tmp_path: Path) -> None:
    """Neither in plain text nor with a certificate of another start: not even a call arrives."""
    for other in (None, certified(tmp_path / "other")):
        with listening(other) as server:
            assert next_task(server, own) is None
            assert server.calls == []  # type: ignore[attr-defined]


def test_its_key_is_its_owners_alone(own: Path) -> None:
    assert (own / client.RUNTIME_KEY).stat().st_mode & 0o777 == 0o600
