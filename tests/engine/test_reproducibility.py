"""One seed, one result: whatever the number of Ray actors and the inference."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_simulation import SMALL, simulate

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("actors", "config"),
    [
        (1, 'inference="mc-dropout" strategy="nwa" fraction-train=0.6'),
        (
            4,
            'inference="flipout" strategy="lp" weighting="max-discrepancy" prior="previous-global"',
        ),
    ],
)
def test_the_number_of_actors_does_not_matter(actors: int, config: str, tmp_path: Path) -> None:
    """Ray is told of more CPUs than there are, so that clients finish in any order."""
    five = ("--num-supernodes", "5")
    config = f"{SMALL} {config}"
    serial = simulate(tmp_path, "serial", *five, "--backend", "serial", config=config)
    cpus = f'{{"init_args": {{"num_cpus": {actors}}}}}'
    ray = simulate(tmp_path, "ray", *five, "--backend-config", cpus, config=config)
    assert [r["posterior-sha256"] for r in serial.rounds()] == [
        r["posterior-sha256"] for r in ray.rounds()
    ]
