"""The engine that only pretends, in place of those that ``bfl study`` starts."""

import pytest
from small_study import PretendingEngine

from bfl.commands import study as commands


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> PretendingEngine:
    engine = PretendingEngine()
    monkeypatch.setattr(commands, "_engine", lambda *_: lambda: engine)
    return engine
