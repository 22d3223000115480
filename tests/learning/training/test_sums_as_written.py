"""Gradients of three parts or more are added as written; a process may still differ."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bfl.keras import sums_as_written, tf

ROOT = Path(__file__).resolve().parent.parent.parent.parent
PROXIMAL = """
import json, sys
from contextlib import redirect_stdout
from pathlib import Path
from bfl.configuration.sources import parse_pairs
from bfl.engine.flower import FlowerApp, run_serially
values = parse_pairs('model="mlp" clients=2 rounds=1 local-epochs=1 train-examples=300 '
                     'test-examples=60 evaluate-every=0 strategy="fedprox" mc-samples=2 '
                     f'evaluate-mc-samples=1 output-dir="{sys.argv[1]}" name="run"')
with redirect_stdout(sys.stderr):
    run_serially(FlowerApp.read(Path(sys.argv[2])), values, 2, {})
"""


def arithmetic() -> bool:
    """Return whether TensorFlow rewrites sums."""
    return tf.config.optimizer.get_experimental_options().get("arithmetic_optimization", True)


def test_sums_are_rewritten_outside_alone() -> None:
    assert arithmetic()
    with sums_as_written():
        assert not arithmetic()
    with pytest.raises(KeyError), sums_as_written():
        raise KeyError
    assert arithmetic()


@pytest.mark.xfail(reason="a known fault: one process in some ten still differs", strict=False)
@pytest.mark.long
def test_other_processes_find_the_same_bits_with_a_proximal_term(tmp_path: Path) -> None:
    """About 55 s. Without the order, two digests came up equally often."""
    digests = set()
    for number in range(5):
        folder = tmp_path / str(number)
        subprocess.run(
            [sys.executable, "-c", PROXIMAL, str(folder), str(ROOT)],
            check=True,
            capture_output=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        last = (folder / "run" / "rounds.jsonl").read_text(encoding="utf-8").splitlines()[-1]
        digests.add(json.loads(last)["posterior-sha256"])
    assert len(digests) == 1
