"""The engine that only pretends, in place of those that ``bfl study`` starts."""

import pytest
from small_study import PretendingEngine

from bfl.experiments.studies import making


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> PretendingEngine:
    engine = PretendingEngine()
    monkeypatch.setattr(making, "_engine", lambda *_: lambda: engine)
    return engine
