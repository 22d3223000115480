"""One seed, one result: in one process, and on Ray with any number of actors."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_simulation import ROOT, simulate

from bfl.configuration.sources import parse_pairs
from bfl.engine.flower import FlowerApp, run_serially
from bfl.experiments.results.run_folder import RunFolder

MOMENTUM_SET_BACK = ('strategy="nwa"', 'strategy="fedavgm" server-momentum=0.0')
"""A rule, and a preset of it whose other value a user sets back to the default."""

SMALL = 'model="resnet8" rounds=2 local-epochs=1 mc-samples=2 evaluate-mc-samples=1'
CLIENTS = 5

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("actors", "config"),
    [
        # What a client keeps from one message of a masked round to the next follows it from actor
        # to actor.
        (2, 'inference="mc-dropout" strategy="nwa" fraction-train=0.6 exchange="masked"'),
        pytest.param(
            2,
            'partition="dirichlet" alpha=1.0 strategy="ppa" weighting="distance"',
            marks=pytest.mark.long,
        ),
        pytest.param(
            4,
            'strategy="lp" weighting="max-discrepancy" prior="previous-global"',
            marks=pytest.mark.long,
        ),
    ],
)
def test_the_number_of_actors_does_not_matter(actors: int, config: str, tmp_path: Path) -> None:
    """Ray is told of more CPUs than there are, so that clients finish in any order.

    Where the rule is NWA, the command is given FedAvgM without its momentum, which is the same.
    """
    config = f"{SMALL} {config}"
    here = parse_pairs(f'{config} output-dir="{tmp_path}" name="serial"')
    run_serially(FlowerApp.read(ROOT), here, CLIENTS, {})
    serial = RunFolder(tmp_path / "serial")
    cpus = f'{{"init_args": {{"num_cpus": {actors}}}}}'
    five = ("--num-supernodes", str(CLIENTS))
    given = config.replace(*MOMENTUM_SET_BACK)
    ray = simulate(tmp_path, "ray", *five, "--backend-config", cpus, config=given)
    assert [entry["posterior-sha256"] for entry in serial.rounds()] == [
        entry["posterior-sha256"] for entry in ray.rounds()
    ]
    assert serial.metrics() == ray.metrics()
