"""The picture of a round at the top of the documentation, held to the code and to a round."""

import ast
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bfl.configuration import resolve
from bfl.engine.flower import new_run
from bfl.engine.serial import SerialGrid
from bfl.federation.wire import posterior_to_arrays
from bfl.learning.training import LocalResult, LocalTask
from bfl.posteriors import Posterior
from clients import client_app
from clients import round as client_round
from strategies import WeightedSumOfNormals
from strategies.privacy import PoolNoise
from strategies.run_support import ClientOptions, RunSupport

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "internals.md"
STEP = re.compile(r'^ +(\w+)\["([\w/]+\.py)<br/>(\w+)\(\)<br/>', re.MULTILINE)
STEPS = {name: (file, function) for name, file, function in STEP.findall(PAGE.read_text("utf-8"))}
ELSEWHERE = {"learn": "trains with TensorFlow", "record": "is told of rounds by the ServerApp"}

GIVEN = {"dataset": "digits", "inference": "flipout"}
START = Posterior(np.zeros(3, np.float32), np.ones(3, np.float32), np.zeros(1, np.float32))


class Untrained:
    """Stands for a trainer, which would need TensorFlow: it gives back what was received."""

    network = SimpleNamespace(manifest=None)

    def train(self, images: Any, labels: Any, task: LocalTask) -> LocalResult:
        return LocalResult(task.received, 1.0, 1.0, 0.0, {}, 1, np.ones(1, bool))


@pytest.mark.parametrize("name", STEPS)
def test_each_step_is_a_function_of_its_file(name: str) -> None:
    file, function = STEPS[name]
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert function in {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}


def test_steps_are_joined_to_one_another_in_their_order() -> None:
    lines = re.findall(r"^    (\w+(?: --> \w+)+)$", PAGE.read_text("utf-8"), re.MULTILINE)
    joined = " --> ".join(lines).split(" --> ")
    assert list(dict.fromkeys(joined)) == list(STEPS)
    assert len(STEPS) > 10


def test_one_update_goes_through_three_files_on_the_server() -> None:
    [steps] = re.findall(r"subgraph after .*?\n(.*?)\n    end", PAGE.read_text("utf-8"), re.DOTALL)
    files = [file for _, file, _ in STEP.findall(steps)]
    assert files == [
        "strategies/updates.py",
        "strategies/round.py",
        "bfl/aggregation/pooling/core.py",
    ]


def test_a_round_goes_through_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a kind of part have what its base says, or do it in a file beside it."""
    called: set[tuple[str, str]] = set()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            called.add((frame.f_code.co_filename, frame.f_code.co_name))

    monkeypatch.setattr(client_round, "trainer_for", lambda *_, **__: Untrained())
    monkeypatch.setattr(client_round, "start_tensorflow", lambda: None)
    told: list[str] = []

    class Warned(RunSupport):
        def warn(self, text: str) -> None:
            told.append(text)

    strategy = WeightedSumOfNormals(
        weighting="train-size",
        client_options=ClientOptions(
            configuration=resolve(GIVEN), partition=[np.arange(4), np.arange(4, 10)]
        ),
        run=Warned(pool_noise=PoolNoise(resolve(GIVEN).outgoing, 0, anew=False)),
    )
    grid = SerialGrid(client_app.app, 2, new_run({}), {})
    sys.setprofile(note)
    try:
        strategy.start(grid, posterior_to_arrays(START), num_rounds=1)
    finally:
        sys.setprofile(None)
    assert not told
    called |= {(str(Path(file).with_name("base.py")), function) for file, function in called}
    for name in STEPS.keys() - ELSEWHERE.keys():
        file, function = STEPS[name]
        assert (str(ROOT / file), function) in called, name


def test_every_page_is_listed() -> None:
    index = ROOT / "docs" / "README.md"
    text = index.read_text("utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert page == index or f"({page.name})" in text, page.name
