"""One seed, one result: in one process, and on Ray with any number of actors."""

from pathlib import Path

import pytest
from test_simulation import ROOT, simulate

from bfl.configuration.pairs import parse_pairs
from bfl.engine.flower import FlowerApp, run_serially
from bfl.experiments.results.run_folder import RunFolder

MOMENTUM_SET_BACK = ('strategy="nwa"', 'strategy="fedavgm" server-momentum=0.0')
"""A rule, and a preset of it whose other value a user sets back to the default."""

SMALL = "rounds=2 local-epochs=1 mc-samples=2 evaluate-mc-samples=1"
CLIENTS = 5

pytestmark = pytest.mark.slow


DISTILLED = (
    'strategy="fedbe" inference="deterministic" model="convnet" dataset="digits" image-size=32 '
    "image-channels=3 train-examples=340 server-examples=100 test-examples=20 rounds=1 "
    "local-epochs=1 mc-samples=1 evaluate-every=0 batch-size=40 ensemble-samples=1 "
    'distillation-epochs=3 swa-start=2 swa-cycle=1 learning-rate=0.01 closing="none"'
)
"""A student in whose steps TensorFlow adds by threads: on two of them it has other bits."""


@pytest.mark.long
def test_what_the_server_learns_does_not_depend_on_its_cpus(tmp_path: Path) -> None:
    """Under Ray its process may use all of the machine's, here as many as the clients."""
    here = parse_pairs(f'{DISTILLED} output-dir="{tmp_path}" name="serial"')
    run_serially(FlowerApp.read(ROOT), here, 2, {})
    ray = simulate(tmp_path, "ray", "--num-supernodes", "2", config=DISTILLED)
    assert ray.read_json("run.json:network")["threads"] == 1
    found = [run.rounds()[0]["posterior-sha256"] for run in (RunFolder(tmp_path / "serial"), ray)]
    assert found[0] == found[1]


@pytest.mark.long
@pytest.mark.parametrize(
    ("actors", "config"),
    [
        # What a client keeps from one message of a masked round to the next follows it from actor
        # to actor.
        (
            2,
            'model="mlp" inference="mc-dropout" strategy="nwa" fraction-train=0.6 '
            'exchange="masked" closing="bayesian-head+feature-density"',
        ),
        (
            3,
            'model="mlp" strategy="lp" weighting="max-discrepancy" prior="previous-global" '
            'closing="none"',
        ),
    ],
    ids=["masked", "prior"],
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
