"""A server that tells one client something else than the others learns nothing of its vector."""

import json
from typing import Any

import numpy as np
import pytest
from flwr.app import RecordDict
from in_memory import TOLD, Clients, plain_sum, random_vectors, run

from bfl.aggregation.pooling import pooling_rules
from bfl.aggregation.pooling.base import client_statistics
from bfl.configuration.configuration import without_paths
from bfl.errors import TooFewClientsError
from bfl.federation.secure_aggregation.masking import (
    choose_exponents,
    decode_statistics,
    encode_statistics,
)
from bfl.federation.secure_aggregation.messages import task_digest
from bfl.federation.wire import TrainTask, posterior_to_arrays, train_content, vectors_to_arrays
from bfl.posteriors import Posterior

OTHER = TOLD[::-1]
SENT = Posterior(np.zeros(20, np.float32), np.full(20, 0.01, np.float32), np.zeros(3, np.float32))
EXPONENTS = [-40, -40, -30]


def values(**more: Any) -> str:
    return json.dumps({"dataset": "digits", "data-dir": "", "learning-rate": 0.1, **more})


def message(
    posterior: Posterior = SENT,
    server_round: int = 3,
    configuration: str = "",
    beside: dict[str, Any] | None = None,
    more: dict[str, Any] | None = None,
    **of_one_client: Any,
) -> RecordDict:
    task = TrainTask(
        server_round=server_round,
        configuration=configuration or values(),
        num_classes=10,
        **{"partition_id": 0, "examples": None, **of_one_client},
    )
    arrays = posterior_to_arrays(posterior)
    return train_content(arrays, task, more, vectors_to_arrays(beside or {}))


def digest(content: RecordDict, exponents: list[int], total: float = 60.0) -> bytes:
    return task_digest(content, exponents, total, without_paths)


def test_what_is_one_clients_own_changes_no_digest():
    alike = digest(message(), EXPONENTS)
    own = {"partition_id": 4, "examples": np.arange(3), "pooled_round": 2, "damping": 0.5}
    assert digest(message(**own), EXPONENTS) == alike
    there = values(**{"dataset": "digits", "data-dir": "/somewhere"})
    assert digest(message(configuration=there, run_folder="/runs/a"), EXPONENTS) == alike


@pytest.mark.parametrize(
    ("told", "exponents", "total"),
    [
        ({}, [-900, -900, -900], 60.0),
        ({}, EXPONENTS, 61.0),  # the sum that makes weights
        ({"posterior": Posterior(SENT.mean + 1, SENT.variance, SENT.point)}, EXPONENTS, 60.0),
        ({"posterior": Posterior(SENT.mean, SENT.variance, SENT.point + 1)}, EXPONENTS, 60.0),
        ({"server_round": 4}, EXPONENTS, 60.0),
        ({"configuration": values(**{"learning-rate": 1e-9})}, EXPONENTS, 60.0),
        ({"beside": {"control": np.ones(2, np.float32)}}, EXPONENTS, 60.0),
        ({"more": {"scale": 0.0}}, EXPONENTS, 60.0),
    ],
)
def test_what_is_told_to_all_is_in_the_digest(told, exponents, total):
    assert digest(message(**told), exponents, total) != digest(message(), EXPONENTS)


@pytest.mark.parametrize("count", [3, 6])
def test_masks_of_who_was_told_something_else_stay_in_the_sum(count):
    """Also where the others are enough to take the masks off that each draws by itself."""
    vectors = random_vectors(count)
    victim, *others = vectors
    told = dict.fromkeys(vectors, TOLD) | {victim: OTHER}
    refusals: list[str] = []
    clients = Clients(vectors, told=told)
    total = run(clients, refusals=refusals)
    assert refusals[0].startswith(
        f"client {victim}: 1 of {count} neighbours, itself among them, co"
    )
    try:
        found = total.total()
    except TooFewClientsError:
        found = None
    if found is not None:
        for left in (others, list(vectors)):
            assert not (found == plain_sum(vectors, left)).any()


@pytest.mark.parametrize("victim_is_honestly_told", [True, False])
@pytest.mark.parametrize("name", ["conflation", "log-linear-pool"])
def test_a_grid_on_which_the_others_are_nothing_gives_nobodys_update(name, victim_is_honestly_told):
    rule, count = pooling_rules.create(name), 6
    generator = np.random.default_rng(0)
    exponents = choose_exponents(rule, SENT, [1 / count] * count)
    vectors, told, statistics = {}, {}, {}
    for client in range(count):
        mean = generator.normal(0, 0.1, SENT.size).astype(np.float32)
        posterior = Posterior(mean, SENT.variance, SENT.point)
        statistics[client] = client_statistics(rule, posterior, 1 / count, SENT)
        grid = exponents if client == 2 else [-900] * len(exponents)
        vectors[client] = encode_statistics(statistics[client], grid)
        told[client] = digest(message(), grid)
    # The sum of the vectors is the victim's: this is what masks hide.
    unmasked = decode_statistics(plain_sum(vectors, vectors), exponents, SENT.size, 3).gaussian
    np.testing.assert_allclose(unmasked, statistics[2].gaussian, rtol=1e-3)
    servers = told[2] if victim_is_honestly_told else told[0]
    found = run(Clients(vectors, told=told), refusals=[], told=servers).total()
    decoded = decode_statistics(found, exponents, SENT.size, 3).gaussian
    assert (np.abs(decoded - unmasked) > 1e-3 * np.abs(unmasked)).all()
