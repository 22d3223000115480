"""Hosts on this machine: network namespaces with addresses and names of their own, and a switch."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

NAMES = Path("/etc/netns")
"""Where ``ip netns exec`` finds files that stand for those of /etc in a namespace."""


def why_not() -> str:
    """Return why hosts cannot be made here; empty: they can."""
    if not shutil.which("ip"):
        return "there is no command ip (Debian: apt-get install iproute2)"
    if os.geteuid() != 0:
        return "network namespaces are root's to make"
    name = f"bfl-try-{os.getpid()}"
    veth = ("link", "add", "name", "eth0", "netns", name, "type", "veth", "peer", "name", "eth1")
    try:
        for words in (("netns", "add", name), (*veth, "netns", name)):
            tried = subprocess.run(["ip", *words], capture_output=True, text=True)
            if tried.returncode:
                return f"ip {words[0]} add does not work here: {tried.stderr.strip()}"
    finally:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True)
    return ""


class Hosts:
    """Hosts with addresses of their own, connected by a switch.

    Args:
        addresses: The address (IPv4) of each host, by its name.
        names: What all hosts call an address, by name.
    """

    def __init__(self, addresses: Mapping[str, str], names: Mapping[str, str]) -> None:
        self._prefix = f"bfl-{os.getpid()}-"
        self._hosts = list(addresses)
        self._switch = f"{self._prefix}switch"
        hosts = "".join(f"{address} {name}\n" for name, address in names.items())
        try:
            _ip("netns", "add", self._switch)
            _ip("-n", self._switch, "link", "add", "bridge", "type", "bridge")
            _ip("-n", self._switch, "link", "set", "bridge", "up")
            for number, (host, address) in enumerate(addresses.items()):
                self._add(host, address, f"port{number}", hosts)
        except BaseException:
            self.remove()
            raise

    def _add(self, host: str, address: str, port: str, hosts: str) -> None:
        space = self._space(host)
        folder = NAMES / space
        folder.mkdir(parents=True)
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n{hosts}")
        _ip("netns", "add", space)
        ends = ("name", "eth0", "netns", space, "type", "veth")
        _ip("link", "add", *ends, "peer", "name", port, "netns", self._switch)
        _ip("-n", self._switch, "link", "set", port, "master", "bridge", "up")
        _ip("-n", space, "address", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "lo", "up")
        _ip("-n", space, "link", "set", "eth0", "up")

    def on(self, host: str, *command: str) -> tuple[str, ...]:
        """Return a command as one that runs on a host."""
        return ("ip", "netns", "exec", self._space(host), *command)

    def link(self, host: str, state: str) -> None:
        """Cut a host's link (``down``), or restore it (``up``), at the switch."""
        port = f"port{self._hosts.index(host)}"
        _ip("-n", self._switch, "link", "set", port, state)

    def remove(self) -> None:
        """Remove all that was made; the processes have ended by then."""
        for space in (self._switch, *map(self._space, self._hosts)):
            subprocess.run(["ip", "netns", "delete", space], capture_output=True)
            shutil.rmtree(NAMES / space, ignore_errors=True)

    def _space(self, host: str) -> str:
        return f"{self._prefix}{host}"


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    assert not done.returncode, f"ip {' '.join(words)}: {done.stderr}"
