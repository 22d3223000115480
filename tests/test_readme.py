import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")

USE = """
import numpy as np
import strategies
from bfl.pooling import pool
from bfl.posteriors import Posterior

clients = [Posterior(np.array([m]), np.array([v])) for m, v in ((0.0, 1.0), (3.0, 3.0))]
pooled = pool(pooling_rules.create("hmv"), clients, [2.0, 1.0]).posterior
np.testing.assert_allclose([pooled.mean[0], pooled.variance[0]], [1.0, 3 / (2 + 1 / 3)])
print(strategies.HarmonicMeanOfVariances.__name__)
"""


def test_the_example_of_a_new_rule_works() -> None:
    """In a process of its own: a registration stays for as long as the process."""
    [example] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", example + USE], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.strip() == "HarmonicMeanOfVariances", done.stderr


def test_links_and_pictures_are_there() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", README):
        assert (ROOT / target).exists(), target
