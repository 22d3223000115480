"""A client of a federation: checks before its start, Flower's SuperNode, and its worker."""

from __future__ import annotations

import math
import secrets
import socket
import ssl
import time
from contextlib import closing
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx
import tomli_w
from cryptography.hazmat.primitives.serialization import Encoding

from bfl.deployment import private_files as names
from bfl.deployment.authority import (
    AUTHORITY_DAYS,
    Authority,
    check_dates,
    load_certificate,
    load_private_key,
    new_key,
    private_pem,
)
from bfl.deployment.processes import LOG, Processes, Say, flower_environment
from bfl.deployment.settings import PORT, Identity, NodeSettings, NodeTable
from bfl.engine.flower import warm
from bfl.engine.flower.flower_process import LET_IN
from bfl.errors import DataError
from bfl.experiments.results.run_folder import locked
from bfl.files import write_atomically

CLOCK_AHEAD, CLOCK_BEHIND = 4.0, 300.0
"""Seconds that a client's clock may be ahead of the server's, and behind: Flower signs with the
time, and takes what is 5 s from the future to 305 s old."""

RUNTIME_CA, RUNTIME_CERTIFICATE, RUNTIME_KEY = "runtime-ca.crt", "runtime.crt", "runtime.key"
CALL_TIMEOUT, CALL_INTERVAL = 10.0, 2.0
"""Seconds of a call of the server, and until the next one where it does not answer."""

ANSWER_PATIENCE, START_PATIENCE = 10.0, 20.0
"""Seconds after which it is said that a server does not answer, and does not let a node in; then
again whenever it has lasted twice as long."""

LOOK_AT = "see that the server runs, and server and port in identity.toml"


def run_client(folder: Path, state: Path, say: Say) -> None:
    """Run a client until it is interrupted; each line begins with its name."""
    folder = folder.resolve()
    identity, node = check_client(folder, datetime.now(UTC))
    name = f"client {identity.name}"

    def tell(text: str) -> None:
        say(f"{name}: {text}")

    state = names.private_folder(state.resolve())
    # Locked before the first write, as a running client reads these files.
    with locked(state, "another client uses"):
        wait_for_server(identity, folder / names.CA, tell)
        home, work = names.private_folder(state / "flower"), names.private_folder(state / "work")
        config, secret = state / "node-config.toml", state / names.SECRET
        settings = node_config(identity, node, state, folder / names.CLIENT_KEY)
        write_atomically(config, tomli_w.dumps(settings).encode())
        names.write_private(secret, secrets.token_hex(32).encode())
        environment = {**flower_environment(home), "BFL_CLIENT": name}
        if node.cpus:
            environment["BFL_CPUS"] = str(node.cpus)
        with socket.create_server(("127.0.0.1", 0)) as probe:  # a free port
            port = warm.NodePort(f"127.0.0.1:{probe.getsockname()[1]}", state / RUNTIME_CA)
        _certify_port(state, datetime.now(UTC))
        worker = warm.WarmWorker(
            port, environment, work, tell, node.task_timeout, node.bundles or ()
        )
        with (
            closing(Processes(environment, work, state / LOG)) as processes,
            closing(worker),
            (state / LOG).open("a+", encoding="utf-8", errors="replace") as log,
        ):
            processes.start(
                f"the SuperNode of {name}",
                *(*warm.flower_command("node"), "--superlink", identity.address),
                *("--root-certificates", folder / names.CA),
                *("--auth-supernode-private-key", folder / names.CLIENT_KEY),
                *("--host", "127.0.0.1", "--port", port.address.rpartition(":")[2]),
                *("--ssl-ca-certfile", state / RUNTIME_CA),
                *("--ssl-certfile", state / RUNTIME_CERTIFICATE),
                *("--ssl-keyfile", state / RUNTIME_KEY),
                *("--isolation", "process", "--superexec-auth-secret-file", secret),
                *("--node-config", config),
            )
            tell(f"calls {identity.address}; Flower's own lines are in {state / LOG}")
            tasks = warm.Tasks(port, secret.read_bytes())
            began, next_said = time.monotonic(), START_PATIENCE
            task: warm.Task | None = None

            def show_own_lines() -> None:
                nonlocal next_said
                for line in log:
                    if line.startswith(f"{name}: "):
                        next_said = math.inf  # it is let in, or the line says why not
                        partition = f"{identity.partition_id} of {identity.num_partitions}"
                        connected = f"has partition {partition}, and waits for runs"
                        say(line.rstrip().replace(LET_IN, connected))

            try:
                while True:
                    show_own_lines()
                    if (seconds := time.monotonic() - began) > next_said:
                        tell(f"{identity.address} has not let it in for {seconds:.0f} s; {LOOK_AT}")
                        next_said = 2 * seconds
                    processes.check()
                    task = task or tasks.next()
                    if task:
                        task = worker.play(task, processes.check, tasks)
                    else:
                        time.sleep(0.1)
            finally:
                show_own_lines()  # a SuperNode that has ended has said why


def check_client(folder: Path, now: datetime) -> tuple[Identity, NodeSettings]:
    """Return who a client is and its settings, checked before anything starts."""
    identity = Identity.read(folder / names.IDENTITY)
    node = f"client {identity.name}"
    names.check_private(folder / names.CLIENT_KEY, node)
    load_private_key(folder / names.CLIENT_KEY, openssh=True)
    authority = load_certificate(folder / names.CA)
    check_dates(authority, node, "the authority's certificate", now)
    return identity, NodeSettings.of_client(folder / names.NODE, identity.name)


def wait_for_server(identity: Identity, authority: Path, say: Say) -> None:
    """Call the server until it answers, and check its certificate and this machine's clock."""
    server, url, printed = identity.address, f"https://{identity.address}/", ""
    began, next_said = time.monotonic(), ANSWER_PATIENCE
    trusted = ssl.create_default_context(cafile=str(authority))
    while True:
        try:
            called = time.time()  # a slow answer makes no clock fast
            answer = httpx.get(url, verify=trusted, trust_env=False, timeout=CALL_TIMEOUT)
            if date := answer.headers.get("date"):
                ahead = called - parsedate_to_datetime(date).timestamp()
                check_clock(f"client {identity.name}", ahead)
            if answer.status_code == 404 and not answer.content:
                return
            reason = f"what answers is no server for clients, whose port is mostly {PORT}"
        except httpx.TransportError as error:
            reason = str(error)
            if "CERTIFICATE_VERIFY_FAILED" in reason:
                raise DataError(
                    f"client {identity.name}: the certificate of {server} does not hold: {reason}; "
                    f"allowed: one of the authority in {authority} that names {identity.server}, "
                    f"and is valid at this machine's {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
                ) from error
        if reason != printed:
            say(f"{server} does not answer yet ({reason}); it is called again until it does")
        elif (seconds := time.monotonic() - began) > next_said:
            say(f"{server} has not answered as this federation's for {seconds:.0f} s; {LOOK_AT}")
            next_said = 2 * seconds
        printed = reason
        time.sleep(CALL_INTERVAL)


def check_clock(node: str, ahead: float) -> None:
    """Refuse a clock with which Flower would not let the node in.

    Args:
        ahead: Seconds that its clock is ahead of the server's; negative: behind.
    """
    if not -CLOCK_BEHIND <= ahead <= CLOCK_AHEAD:
        raise DataError(
            f"{node}: this machine's clock is {abs(ahead):.0f} s "
            f"{'ahead of' if ahead > 0 else 'behind'} the server's; allowed: {CLOCK_AHEAD:.0f} s "
            f"ahead, {CLOCK_BEHIND:.0f} s behind; set it, for instance by NTP"
        )


def node_config(identity: Identity, node: NodeSettings, state: Path, key: Path) -> dict[str, Any]:
    """Return the node's configuration, by which the client's app decides."""
    settings = node.model_dump(by_alias=True, include=set(NodeTable.model_fields))
    return {
        "partition-id": identity.partition_id,
        "num-partitions": identity.num_partitions,
        "state-dir": str(state / "client"),
        **({"signing-key": str(key)} if node.clients_list else {}),
        **{name: value for name, value in settings.items() if value != ""},
    }


def _certify_port(state: Path, now: datetime) -> None:
    """Make the certificate by which the SuperNode's own processes know it, for one start."""
    authority, key = Authority.create(now), new_key()
    certificate = authority.server_certificate(key.public_key(), (), now, days=AUTHORITY_DAYS)
    names.write_private(state / RUNTIME_KEY, private_pem(key))
    write_atomically(state / RUNTIME_CERTIFICATE, certificate.public_bytes(Encoding.PEM))
    # Its own key is kept nowhere.
    write_atomically(state / RUNTIME_CA, authority.certificate.public_bytes(Encoding.PEM))
