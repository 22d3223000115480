"""One seed, one result: in one process, and on Ray with any number of actors."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bfl.configuration.settings import parse_pairs
from bfl.engine.flower.app import FlowerApp, run_serially
from bfl.engine.flower.simulation import RayEngine
from bfl.experiments.results.run_folder import RunFolder

ROOT = Path(__file__).resolve().parent.parent.parent
SMALL = (
    'model="mlp" rounds=2 local-epochs=1 mc-samples=2 evaluate-mc-samples=1 train-examples=500 '
    'test-examples=100 figures="none"'
)
CLIENTS = 5

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(scope="module")
def engine() -> Iterator[RayEngine]:
    """Return three actors; Ray is told of more CPUs than there are, so that clients finish in any
    order.
    """
    backend = {"init_args": {"num_cpus": 3}}
    with RayEngine(FlowerApp.read(ROOT), backend, most_clients=CLIENTS) as engine:
        yield engine


@pytest.mark.parametrize(
    "config",
    [
        # What a client keeps from one message of a masked round to the next follows it from actor
        # to actor.
        'inference="mc-dropout" strategy="nwa" fraction-train=0.6 exchange="masked" '
        'closing="bayesian-head+feature-density"',
        'strategy="lp" weighting="max-discrepancy" prior="previous-global" closing="none"',
    ],
    ids=["masked", "prior"],
)
def test_the_number_of_actors_does_not_matter(
    config: str, engine: RayEngine, tmp_path: Path
) -> None:
    def values(name: str) -> dict[str, object]:
        given = f'{SMALL} {config} clients={CLIENTS} output-dir="{tmp_path}" name="{name}"'
        return dict(parse_pairs(given))

    engine.run(values("ray"), CLIENTS)
    run_serially(FlowerApp.read(ROOT), values("serial"), CLIENTS, {})
    ray, serial = (RunFolder(tmp_path / name) for name in ("ray", "serial"))
    assert [entry["posterior-sha256"] for entry in serial.rounds()] == [
        entry["posterior-sha256"] for entry in ray.rounds()
    ]
    assert serial.metrics() == ray.metrics()
