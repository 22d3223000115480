"""The bits of pooled posteriors, for all rules, weightings and exchanges: none changes unnoticed.

    PYTHONPATH=.:tests python tests/strategies/test_pooled_digests.py    # records them

Clients and training are NumPy's. The digests depend on the kind of processor and on NumPy, so both
are recorded, and elsewhere nothing is compared; ``scripts/bits.py`` compares runs with networks.
"""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy_clients import PartFederation
from numpy_server import NumpyServer

from bfl import randomness
from bfl.aggregation.pooling import pool, pooling_rules
from bfl.aggregation.weightings import weightings
from bfl.configuration import Configuration, resolve
from bfl.errors import ConfigurationError
from bfl.experiments.results.environment import describe_environment
from bfl.federation.exchanges import exchanges
from bfl.federation.parts import Arrays, Trained
from bfl.federation.wire import TrainTask
from bfl.posteriors import Posterior
from clients.state import PartStates
from strategies.application.rounds import make_strategy
from strategies.run_support import RunSupport

RECORDED = Path(__file__).with_name("pooled_digests.json")
DIGESTS: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
"""Those of bfl's own parts: a rule of somebody else's has none."""
MACHINE = ("processor", "python", "numpy")
EXAMPLES = (20, 5, 11, 8, 30, 14)
D, P, ROUNDS = 50, 3, 2
LARGE = 300_001
"""Parameters of more than two of pooling's blocks."""
REFUSED = "refused"
CASES = [
    f"{rule} {weighting} {exchange}"
    for rule in pooling_rules.names()
    for weighting in weightings.names()
    for exchange in exchanges.names()
]


def drawn(seed: int, size: int, points: int, spread: float = 1.0) -> Posterior:
    generator = np.random.default_rng(seed)
    return Posterior(
        generator.normal(0, spread, size).astype(np.float32),
        generator.uniform(0.01, 0.2, size).astype(np.float32),
        generator.normal(size=points).astype(np.float32),
    )


def training(configuration: Configuration) -> Any:
    """Return clients that move what they receive, each by its own steps of each round."""

    def train(task: TrainTask, received: Posterior, beside: Arrays, states: PartStates) -> Trained:
        density = configuration.prior.density(received, states.of_part(configuration.prior))
        pull = (received.mean - density.standardize().centre) / 8
        generator = np.random.default_rng((task.server_round, task.partition_id))
        steps = generator.normal(0, 0.1, D) - pull
        sent = Posterior(
            received.mean + steps.astype(np.float32),
            received.variance * generator.uniform(0.3, 1.0, D).astype(np.float32),
            received.point + np.float32(task.partition_id),
        )
        moved = {name: np.zeros(getattr(received, name).size) for name in ("mean", "point")}
        count = EXAMPLES[task.partition_id]
        return Trained(received, sent, beside, count, 1, 0.1, np.ones(P, bool), moved)

    return train


def posterior_of(case: str, folder: Path) -> str:
    """Return the digest of what a small federation's rounds end with, or that it is refused."""
    rule, weighting, exchange = case.split()
    needs_server = weightings.get(weighting).needs_server
    values = {
        "strategy": "pvi" if rule == "factor-changes" else rule,
        "weighting": weighting,
        "exchange": exchange,
        "clients": len(EXAMPLES),
        **({"server-data": "held-back", "server-examples": 60} if needs_server else {}),
    }
    try:
        configuration = resolve({"dataset": "digits", "min-clients": 1.0, "seed": 3, **values})
    except ConfigurationError:
        return REFUSED
    partition = [np.arange(count) for count in EXAMPLES]

    def made(run: RunSupport) -> Any:
        server = NumpyServer(D + P) if needs_server else None
        return make_strategy(configuration, 10, partition, replace(run, server=server))

    first = configuration.prior.first_posterior(drawn(0, D, P))
    federation = PartFederation(folder, made, training(configuration), len(EXAMPLES), first)
    return federation.run(ROUNDS)[-1].posterior.digest()


def pool_of(rule: str) -> str:
    """Return the digest of what a rule makes of clients with many parameters."""
    clients = [drawn(k, LARGE, 7) for k in range(1, 6)]
    generators = [randomness.generator(3, "pooling", k) for k in range(1, 6)]
    weights, previous = [1.0, 2.0, 0.0, 0.5, 3.0], drawn(0, LARGE, 7, 0.5)
    pooled = pool(
        pooling_rules.create(rule), iter(clients), weights, previous=previous, generators=generators
    )
    return pooled.posterior.digest()


def machine() -> dict[str, Any]:
    environment = describe_environment()
    return {key: environment[key] for key in MACHINE}


@pytest.fixture(scope="module")
def recorded() -> Mapping[str, Any]:
    if DIGESTS["machine"] != machine():
        pytest.skip(f"{RECORDED.name} was recorded on {DIGESTS['machine']}")
    return DIGESTS


@pytest.mark.of_bfls_own
def test_no_rounds_case_is_missing() -> None:
    assert sorted(DIGESTS["rounds"]) == sorted(CASES)
    assert sorted(DIGESTS["pools"]) == sorted(pooling_rules.names())


@pytest.mark.parametrize("case", DIGESTS["rounds"])
def test_rounds_end_with_the_recorded_bits(
    case: str, recorded: Mapping[str, Any], tmp_path: Path
) -> None:
    assert posterior_of(case, tmp_path) == recorded["rounds"][case]


@pytest.mark.parametrize("rule", DIGESTS["pools"])
def test_pools_of_many_parameters_have_the_recorded_bits(
    rule: str, recorded: Mapping[str, Any]
) -> None:
    assert pool_of(rule) == recorded["pools"][rule]


def main() -> None:
    """Record the digests of the code as it is."""
    rounds = {}
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            rounds[case] = posterior_of(case, Path(folder))
    pools = {rule: pool_of(rule) for rule in pooling_rules.names()}
    found = {"machine": machine(), "rounds": rounds, "pools": pools}
    RECORDED.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
