"""The bits of pooled posteriors, for all rules: none changes unnoticed.

    PYTHONPATH=.:tests python tests/strategies/test_pooled_digests.py    # records them

The digests depend on the kind of processor and on NumPy, so both are recorded, and elsewhere
nothing is compared; ``scripts/bits.py`` compares runs with networks.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bfl import randomness
from bfl.aggregation.pooling import pool, pooling_rules
from bfl.experiments.results.environment import describe_environment
from bfl.posteriors import Posterior

RECORDED = Path(__file__).with_name("pooled_digests.json")
DIGESTS: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
"""Those of bfl's own parts: a rule of somebody else's has none."""
MACHINE = ("processor", "python", "numpy")
D, P, ROUNDS = 50, 3, 2
LARGE = 300_001
"""Parameters of more than two of pooling's blocks."""


def drawn(seed: int, size: int, points: int, spread: float = 1.0) -> Posterior:
    generator = np.random.default_rng(seed)
    return Posterior(
        generator.normal(0, spread, size).astype(np.float32),
        generator.uniform(0.01, 0.2, size).astype(np.float32),
        generator.normal(size=points).astype(np.float32),
    )


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
def test_no_rule_is_missing() -> None:
    assert sorted(DIGESTS["pools"]) == sorted(pooling_rules.names())


@pytest.mark.parametrize("rule", DIGESTS["pools"])
def test_pools_of_many_parameters_have_the_recorded_bits(
    rule: str, recorded: Mapping[str, Any]
) -> None:
    assert pool_of(rule) == recorded["pools"][rule]


if __name__ == "__main__":
    digests = {rule: pool_of(rule) for rule in pooling_rules.names()}
    found = {"machine": machine(), "pools": digests}
    RECORDED.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
