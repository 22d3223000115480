"""Clients are sent what they read of a configuration, and resolve it to what the server has."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bfl.configuration import Configuration, resolve
from bfl.configuration.component_slots import SLOTS
from bfl.configuration.keys import SERVER_ONLY_KEYS
from bfl.errors import ConfigurationError
from bfl.federation.exchanges import Masked
from bfl.federation.parts import TwoSidedPart
from bfl.presets import presets
from clients.node import cached_configuration

ROOT = Path(__file__).resolve().parent.parent.parent
CLIENT_KINDS = [kind for kind in SLOTS if not kind.server_only]
NOISE = {"outgoing": "clip+noise", "noise-at": "clients", "inference": "deterministic"}
RUNS: dict[str, dict[str, Any]] = {
    **{name: {"strategy": name, "server-data": "held-back"} for name in presets.names()},
    "masked": {"strategy": "nwa", "exchange": "masked", "weighting": "equal"},
    "many": {
        "strategy": "nwa",
        "defence": "winsorization",
        "server-optimizer": "adam",
        "attack": "sign-flip",
        "attackers": 1,
        "schedule": "step",
        "evaluated-by": "clients",
        "pretrain-examples": 100,
    },
}


def as_resolved(values: dict[str, Any]) -> Configuration:
    """Return the configuration, checked but for what a preset needs besides."""
    return resolve(values, check_data=False, check_parts=False)


@pytest.mark.parametrize("name", RUNS)
def test_a_client_resolves_what_it_is_sent_as_the_server_does(name: str) -> None:
    server = as_resolved(RUNS[name])
    sent = json.dumps(server.for_clients())
    client = resolve(json.loads(sent), check_data=False, check_parts=False)
    checked = server.exchange.clients_check
    for kind in (kind for kind in SLOTS if not kind.server_only or kind.key in checked):
        assert client.picked(kind) == server.picked(kind)
        assert client.words[kind.key] == server.words[kind.key]
    mine, its = (c.keys.model_dump(by_alias=True) for c in (server, client))
    for key in mine.keys() - SERVER_ONLY_KEYS:
        assert (key, its[key]) == (key, mine[key])
    assert json.dumps(client.for_clients()) == sent


@pytest.mark.parametrize("name", RUNS)
def test_nothing_of_the_server_alone_is_sent(name: str) -> None:
    """Neither a key nor the word or a setting of a part that only the server has."""
    server = as_resolved(RUNS[name])
    sent = server.for_clients().keys()
    theirs = {key for k in CLIENT_KINDS for part in server.picked(k) for key in part.setting_keys()}
    for kind in SLOTS:
        if kind.server_only and kind.key not in server.exchange.clients_check:
            assert kind.key not in sent
            for part in server.picked(kind):
                assert not sent & (set(part.setting_keys()) - theirs)
    assert not sent & SERVER_ONLY_KEYS
    assert {"output-dir", "server-data", "refinement"}.isdisjoint(sent)


def test_kinds_with_a_half_on_clients_are_never_the_servers_alone() -> None:
    assert not any(issubclass(kind.base, TwoSidedPart) for kind in SLOTS if kind.server_only)


def read_by_clients() -> Iterator[tuple[str, str]]:
    """Yield which attributes of keys and configurations the clients' code reads, and where."""
    for path in (*(ROOT / "clients").glob("*.py"), ROOT / "bfl/experiments/run/network.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                of = node.value
                name = of.id if isinstance(of, ast.Name) else getattr(of, "attr", "")
                if name in ("keys", "configuration"):
                    yield node.attr, path.name


def test_clients_read_nothing_that_they_are_not_sent() -> None:
    """They would read its default, and nobody would notice."""
    alone = {key.replace("-", "_") for key in SERVER_ONLY_KEYS}
    alone |= {kind.attribute for kind in SLOTS if kind.server_only}
    read = set(read_by_clients())
    assert {"seed", "optimizer", "client_timeout"} <= {name for name, _ in read}
    # Where updates are masked clients are sent the weighting, and elsewhere nobody asks for it.
    assert Masked().clients_check == {"weighting"}
    assert {(name, where) for name, where in read if name in alone} == {("weighting", "masked.py")}


def test_a_client_does_not_trust_that_the_server_has_checked_what_the_client_does() -> None:
    """Arrays beside an update would travel without the noise that the update has."""
    given = {**NOISE, "strategy": "nwa", "correction": "scaffold", "optimizer": "sgd"}
    text = json.dumps(as_resolved(given).for_clients())
    with pytest.raises(
        ConfigurationError, match="outgoing 'noise' goes with no array that clients"
    ):
        cached_configuration(text)


def test_of_the_servers_parts_a_client_needs_and_excludes_nothing() -> None:
    """SCAFFOLD needs equal weights, and PVI no floor: the server has checked it."""
    for name in ("scaffold", "pvi"):
        server = resolve({"strategy": name, "model": "mlp"}, check_data=False)
        client = cached_configuration(json.dumps(server.for_clients()))
        assert client.correction == server.correction
        assert client.prior == server.prior


def test_what_the_server_alone_reads_has_its_default_on_a_client() -> None:
    client = cached_configuration('{"ood-dataset": "folder:/etc", "rounds": 3}')
    assert (client.keys.ood_dataset, client.keys.rounds) == ("", 3)
