"""Secure aggregation: its pooled posterior beside a direct one's, and its seconds, in one process.

    python benchmarks/secure_aggregation.py CELLS.jsonl [--parameters N ...] [--clients K ...]

Every cell is a line of the file, written when it is done; cells that are there are not made again.
All clients are played one after the other, so a client's own time is about a K-th of ``clients``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bfl import randomness
from bfl.aggregation.pooling import pool_weighted, pooling_rules
from bfl.aggregation.pooling.client_statistics import client_statistics, pooled_statistics
from bfl.engine.resources import cpus_of_this_process
from bfl.federation.exchanges.masked import Masked
from bfl.federation.secure_aggregation import client as half
from bfl.federation.secure_aggregation.encoding import decoded_statistics, encoded_statistics
from bfl.federation.secure_aggregation.identity import Unsigned
from bfl.federation.secure_aggregation.server import SecureSum
from bfl.federation.secure_aggregation.value_range import agreed_exponents
from bfl.posteriors import Posterior

RULE = pooling_rules.create("log-linear-pool")
PARAMETERS, CLIENTS = (300_000, 10_000_000, 100_000_000), (4, 16, 64)


def posterior(number: int, size: int) -> Posterior:
    """Return a client's posterior, or the previous global one, which is number 0."""
    draw = randomness.generator(0, "benchmark", "secure", number)
    mean = draw.standard_normal(size, dtype=np.float32) * np.float32(0.05)
    return Posterior(mean, np.square(draw.random(size, dtype=np.float32) * 0.05 + 0.001))


def measured(size: int, count: int) -> dict[str, Any]:
    """Return the errors and the seconds of one cell."""
    secure = Masked().secure_sums
    near, previous = secure.neighbourhood, posterior(0, size)
    weights = [1 / count] * count
    exponents = agreed_exponents(RULE, secure.value_range, previous, weights)
    seconds = dict.fromkeys(("keys-and-shares", "clients", "server"), 0.0)

    @contextmanager
    def timed(what: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        seconds[what] += time.perf_counter() - started

    total = SecureSum("benchmark", range(1, count + 1), RULE.statistics * size, near)
    states = {}
    with timed("keys-and-shares"):
        for client, asked in total.invitations().items():
            states[client], keys = half.advertise(asked, Unsigned())
            total.take_keys(client, keys)
        for client, roster in total.rosters().items():
            states[client], shares = half.share(states[client], roster, near, Unsigned())
            total.take_shares(client, shares)
    for client, delivery in total.deliveries().items():
        update = posterior(client, size)
        with timed("clients"):
            statistics = client_statistics(RULE, update, weights[0], previous)
            vector = encoded_statistics(statistics, exponents)
            states[client] = half.masked(states[client], delivery, vector, near)
        with timed("server"):
            total.add_masked(client, vector)
    with timed("keys-and-shares"):
        for client, survivors in total.asked_to_confirm().items():
            states[client], told = half.confirm(states[client], survivors, near)
            total.take_confirmations(client, told)
        for client, heard in total.asked_to_unmask().items():
            total.take_unmasking(client, half.unmask(states[client], heard, near))
    with timed("server"):
        sums = decoded_statistics(total.total(), exponents, size, 0)
        masked = pooled_statistics(RULE, sums, weights, previous).posterior
    started = time.perf_counter()
    clients = ((posterior(number, size), weights[0], None) for number in range(1, count + 1))
    direct = pool_weighted(RULE, clients, previous=previous).posterior
    shift = np.abs(masked.mean - direct.mean) / np.sqrt(direct.variance)
    return {
        "parameters": size,
        "clients": count,
        "cpus": cpus_of_this_process(),
        "mean-error": float(shift.max()),
        "variance-error": float(np.abs(masked.variance / direct.variance - 1).max()),
        "direct-seconds-and-drawing": time.perf_counter() - started,
        **{f"{what}-seconds": taken for what, taken in seconds.items()},
    }


def main() -> None:
    """Make the cells that the file lacks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--parameters", type=int, nargs="+", default=PARAMETERS)
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS)
    given = parser.parse_args()
    lines = given.output.read_text().splitlines() if given.output.exists() else []
    done = {(cell["parameters"], cell["clients"]) for cell in map(json.loads, lines)}
    for size in given.parameters:
        for count in given.clients:
            if (size, count) not in done:
                cell = measured(size, count)
                with given.output.open("a") as stream:
                    stream.write(json.dumps(cell) + "\n")
                print(json.dumps(cell))


if __name__ == "__main__":
    main()
