"""A deployment's SuperLink waits for its database where Flower's would refuse a call."""

import os
import sys
from pathlib import Path

import pytest
from flwr.supercore import sql_mixin
from flwr.supercore.object_store import object_store_factory
from flwr.supercore.object_store.sql_object_store import SqlObjectStore
from flwr.superlink import cli
from sqlalchemy import text

from bfl.engine.flower import superlink
from bfl.engine.flower.superlink import ObjectStore


def busy_timeout(folder: Path) -> int:
    """Return the milliseconds for which a new connection to a database waits."""
    store = SqlObjectStore(str(folder / "state.db"))
    store.initialize()
    with store.session() as session:
        return int(session.execute(text("PRAGMA busy_timeout")).scalar_one())


@pytest.fixture(autouse=True)
def _flowers_own_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put back what the command exchanges."""
    monkeypatch.setattr(sql_mixin, "SQLITE_PRAGMAS", sql_mixin.SQLITE_PRAGMAS)
    monkeypatch.setattr(object_store_factory, "SqlObjectStore", SqlObjectStore)


def test_calls_wait_longer_while_others_write_and_contents_are_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flowers, seen = dict(sql_mixin.SQLITE_PRAGMAS), []
    assert busy_timeout(tmp_path) == 5_000
    run = lambda: seen.append(object_store_factory.SqlObjectStore)  # noqa: E731
    monkeypatch.setattr(cli, "flower_superlink", run)
    monkeypatch.setattr(sys, "argv", ["superlink", "--insecure"])
    superlink.main()
    assert seen == [ObjectStore]
    assert busy_timeout(tmp_path) == superlink.BUSY_TIMEOUT * 1_000
    assert flowers.keys() == dict(sql_mixin.SQLITE_PRAGMAS).keys()


@pytest.mark.parametrize("address", ["", "elsewhere:6379"])
def test_its_simulations_start_ray_with_a_token(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a cluster that they join, the token is the user's."""
    seen: dict[str, str] = {}
    monkeypatch.setattr(cli, "flower_superlink", lambda: seen.update(os.environ))
    monkeypatch.setattr(sys, "argv", ["superlink", "--insecure", "--simulation"])
    monkeypatch.setattr(os, "environ", {"RAY_ADDRESS": address})
    superlink.main()
    assert (seen.get("RAY_AUTH_MODE") == "token") == (len(seen.get("RAY_AUTH_TOKEN", "")) >= 32)
    assert ("RAY_AUTH_TOKEN" in seen) == (not address)
