"""The picture of a round at the top of the documentation, held to the code and to a round."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bfl.engine.flower import new_run
from bfl.engine.serial import SerialGrid
from bfl.federation.wire import posterior_to_arrays
from bfl.posteriors import Posterior
from strategies import WeightedSumOfNormals

sys.path.append(str(Path(__file__).resolve().parent.parent / "strategies"))
from small_federation import make_app

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "README.md"
STEP = re.compile(r'^ +(\w+)\["([\w/]+\.py)<br/>(\w+)\(\)<br/>', re.MULTILINE)
STEPS = {name: (file, function) for name, file, function in STEP.findall(PAGE.read_text("utf-8"))}
SERVER = [name for name, (file, _) in STEPS.items() if not file.startswith("clients/")]
ELSEWHERE = {"learn": "trains with TensorFlow", "record": "is told of rounds by the ServerApp"}


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


def test_a_round_goes_through_every_step_of_the_server() -> None:
    start = Posterior(np.zeros(3, np.float32), np.ones(3, np.float32), np.zeros(1, np.float32))
    called: set[tuple[str, str]] = set()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            called.add((frame.f_code.co_filename, frame.f_code.co_name))

    strategy = WeightedSumOfNormals(weighting="train-size")
    grid = SerialGrid(make_app(), 4, new_run({}), {})
    sys.setprofile(note)
    try:
        strategy.start(grid, posterior_to_arrays(start), num_rounds=1)
    finally:
        sys.setprofile(None)
    for name in set(SERVER) - ELSEWHERE.keys():
        file, function = STEPS[name]
        assert (str(ROOT / file), function) in called, name


def test_every_page_is_listed() -> None:
    text = PAGE.read_text("utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert page == PAGE or f"({page.name})" in text, page.name
