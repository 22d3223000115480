"""The server of a federation: Flower's SuperLink on loopback, its clients' keys, the one door."""

from __future__ import annotations

import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import tomli_w
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from bfl.deployment import client_list, processes
from bfl.deployment import private_files as names
from bfl.deployment.authority import check_dates, general_name, load_certificate, load_private_key
from bfl.deployment.processes import LOG, Processes, Say
from bfl.deployment.settings import EVERY_ADDRESS, EVERY_ADDRESS_6, ServerSettings
from bfl.engine.flower.warm import flower_command
from bfl.errors import BflError, DataError, RunError
from bfl.experiments.results.run_folder import locked
from bfl.texts import from_json

NODES, HOME = "nodes.json", "flower"
"""In the server's state: the file of bound nodes, and Flower's home."""

CONNECTION = "federation"
"""The name of the connection in the server's own Flower configuration."""

START_WAIT, LOOK_INTERVAL = 120.0, 1.0
"""Seconds that a process may take to answer, and between looks at the list of clients."""


def check_server(folder: Path, now: datetime) -> tuple[ServerSettings, client_list.ClientList]:
    """Return the settings and the clients of a server's folder, checked before anything starts."""
    settings = ServerSettings.read(folder / names.SETTINGS)
    listed = client_list.ClientList.read(folder / names.CLIENTS)
    for name in (names.SERVER_KEY, names.SECRET):
        names.check_private(folder / name, "server")
    certificate = load_certificate(folder / names.SERVER_CERTIFICATE)
    authority = load_certificate(folder / names.CA)
    check_dates(authority, "server", "the authority's certificate", now)
    check_dates(certificate, "server", "the server's certificate", now)
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise DataError(
            "server: its certificate is not of the authority beside it; allowed: both of one "
            "bfl federation init or renew"
        ) from error
    named = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if missing := [host for host in settings.hosts if general_name(host) not in named]:
        raise DataError(
            f"server: host {missing[0]} is not in its certificate, which names "
            f"{', '.join(str(each.value) for each in named)}; make one that does: "
            "bfl federation renew DIR --host NAME"
        )
    if certificate.public_key() != load_private_key(folder / names.SERVER_KEY).public_key():
        raise DataError("server: server.key is not the key that server.crt is for")
    return settings, listed


def serve_federation(folder: Path, state: Path, say: Say) -> None:
    """Run a federation's server until it is interrupted."""
    folder, now = folder.resolve(), datetime.now(UTC)
    settings, listed = check_server(folder, now)
    ends = load_certificate(folder / names.SERVER_CERTIFICATE).not_valid_after_utc
    if (ends - now).days < 30:
        say(f"warning: the server's certificate ends on {ends:%Y-%m-%d}; bfl federation renew")
    state = names.private_folder(state.resolve())
    # Locked before the first write, as a running server reads these files.
    with locked(state, "another server uses"):
        settings.check_ports(folder / names.SETTINGS)
        home, work = names.private_folder(state / HOME), names.private_folder(state / "work")
        address = f"127.0.0.1:{settings.superlink_port}"
        connection = {"address": address, "root-certificates": str(folder / names.CA)}
        text = tomli_w.dumps({"superlink": {"default": CONNECTION, CONNECTION: connection}})
        (home / "config.toml").write_text(text, encoding="utf-8")
        client_list.mark(home, state / NODES)
        started = Processes(processes.flower_environment(home), work, state / LOG)
        registration = Registration(started.run_flwr, state / NODES, say)
        with closing(started):
            say(f"Flower's SuperLink starts, which takes seconds; its lines are in {state / LOG}")
            _start_flower(started, folder, state, address)
            registration.follow(listed)
            started.start("the proxy", sys.executable, "-P", "-m", "bfl.deployment.proxy", folder)
            every = {EVERY_ADDRESS: "127.0.0.1", EVERY_ADDRESS_6: "::1"}
            door = (every.get(settings.listens, settings.listens), settings.port)
            _wait_until(lambda: socket.create_connection(door, 2.0).close(), "the proxy", started)
            started.keep_alive("the proxy")  # what reaches it from outside must not end a run
            say(
                f"clients call {settings.hosts[0]}:{settings.port}; runs are started on this "
                f"machine: bfl federation run {folder} --run-config 'rounds=10'"
            )
            _watch(started, folder / names.CLIENTS, registration, say)


def _start_flower(started: Processes, folder: Path, state: Path, address: str) -> None:
    secret, authority = folder / names.SECRET, folder / names.CA
    host, _, port = address.partition(":")
    started.start(
        "the SuperLink",
        *(*flower_command("superlink"), "--host", host, "--port", port),
        *("--ssl-ca-certfile", authority),
        *("--ssl-certfile", folder / names.SERVER_CERTIFICATE),
        *("--ssl-keyfile", folder / names.SERVER_KEY),
        *("--enable-supernode-auth", "--database", state / "state.db"),
        *("--isolation", "process", "--superexec-auth-secret-file", secret),
    )
    trusted = ssl.create_default_context(cafile=str(authority))
    with httpx.Client(verify=trusted, trust_env=False, timeout=2.0) as client:
        health = f"https://{address}/health"
        _wait_until(lambda: client.get(health).raise_for_status(), "the SuperLink", started)
    started.start(
        "the SuperExec",
        *(processes.command("flower-superexec"), "--runtime-api-address", address),
        *("--root-certificates", authority),
        *("--superexec-auth-secret-file", secret),
    )


def _wait_until(call: Callable[[], object], name: str, started: Processes) -> None:
    deadline = time.monotonic() + START_WAIT
    while time.monotonic() < deadline:
        started.check()
        with suppress(OSError, httpx.HTTPError):
            call()
            return
        time.sleep(0.2)
    raise RunError(f"{name} does not answer after {START_WAIT:g} s")


def _watch(started: Processes, path: Path, registration: Registration, say: Say) -> None:
    """Keep the registered keys as the list of clients says, as long as all processes live."""
    seen, printed = 0, ""  # the list may have changed during the start: it is taken over at once
    while True:
        time.sleep(LOOK_INTERVAL)
        started.check()
        try:
            changed = path.stat().st_mtime_ns
            if changed == seen:
                continue
            registration.follow(client_list.ClientList.read(path))
            seen, printed = changed, ""
        except (BflError, OSError) as error:
            # Tried again at each look: a revoked client must not stay for a moment's failure.
            if str(error) != printed:
                say(f"warning: the changed list of clients is not in use: {error}")
            printed = str(error)


class Registration:
    """The nodes registered at a SuperLink, kept as the list of clients says.

    Args:
        flwr: Runs the command ``flwr`` with the words given; returns its status and output.
        path: The file of nodes and their partitions.
    """

    def __init__(self, flwr: Callable[..., tuple[int, str]], path: Path, say: Say) -> None:
        self._flwr = flwr
        self._path = path
        self._say = say

    def follow(self, listed: client_list.ClientList) -> None:
        """Take back the keys that are not in the list, and register those that are new."""
        nodes = client_list.read_bound_nodes(self._path)
        by_key = {client.public_key: client for client in listed.clients}
        refused: RunError | None = None
        for node, bound in list(nodes.items()):
            if bound.public_key not in by_key:
                try:
                    self._unregister(node, bound)
                except RunError as error:
                    refused = error  # the others' keys are taken back all the same
                else:
                    del nodes[node]
        if not refused:
            # A client may have got another name or partition under its key.
            nodes = {node: by_key[bound.public_key] for node, bound in nodes.items()}
        client_list.write_bound_nodes(self._path, nodes)
        if refused:
            raise refused
        known = {bound.public_key for bound in nodes.values()}
        for key in by_key.keys() - known:
            nodes[self._register(by_key[key])] = by_key[key]
            # One by one: whatever ends this process, a key that Flower knows is written down.
            client_list.write_bound_nodes(self._path, nodes)

    def _register(self, client: client_list.Client) -> int:
        with tempfile.NamedTemporaryFile("w", suffix=".pub") as stream:
            stream.write(client.public_key)
            stream.flush()
            answer = self._flwr_json("register", stream.name)
        if not answer["success"]:
            raise RunError(
                f"client {client.name}: Flower does not register its key: {answer['reason']}\n"
                f"if {self._path} and state.db beside it are of different times, remove both"
            )
        self._say(f"client {client.name} is registered for partition {client.partition_id}")
        return int(answer["node-id"])

    def _unregister(self, node: int, client: client_list.Client) -> None:
        answer = self._flwr_json("unregister", str(node))
        # Gone is gone, also where Flower has lost its state.
        if not answer["success"] and "not found" not in answer["reason"].lower():
            raise RunError(
                f"client {client.name}: Flower does not take back its key: {answer['reason']}"
            )
        self._say(f"client {client.name} is revoked")

    def _flwr_json(self, *words: str) -> dict[str, Any]:
        """Return the JSON object that the command prints, with the ``reason`` of a failure."""
        status, output = self._flwr("supernode", *words, CONNECTION, "--format", "json")
        try:
            answer = from_json(output[output.find("{") : output.rfind("}") + 1])
        except ValueError:
            answer = {}
        reason = str(answer.get("error-message", output)).strip()
        return {**answer, "reason": reason, "success": bool(answer.get("success")) and not status}
