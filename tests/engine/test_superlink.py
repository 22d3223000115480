"""A deployment's SuperLink waits for its database where Flower's would refuse a call."""

from pathlib import Path

import pytest
from flwr.supercore import sql_mixin
from flwr.supercore.object_store.sql_object_store import SqlObjectStore
from flwr.superlink import cli
from sqlalchemy import text

from bfl.engine.flower import superlink


def test_calls_wait_longer_while_others_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int] = []

    def connect() -> None:
        store = SqlObjectStore(str(tmp_path / f"{len(waits)}.db"))
        store.initialize()
        with store.session() as session:
            waits.append(int(session.execute(text("PRAGMA busy_timeout")).scalar_one()))

    monkeypatch.setattr(sql_mixin, "SQLITE_PRAGMAS", sql_mixin.SQLITE_PRAGMAS)  # is put back
    monkeypatch.setattr(cli, "flower_superlink", connect)
    connect()
    superlink.main()
    assert waits == [5_000, superlink.BUSY_TIMEOUT * 1_000]
