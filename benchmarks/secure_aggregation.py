#!/usr/bin/env python
"""Secure aggregation: pooled posterior against a direct one's, and CPU time, in one process.

    python benchmarks/secure_aggregation.py --output FILE [--cells 300000x4 10000000x4 ...]

Of cells that are in the file, only what they lack is made. All clients are played one after the
other, so a client's own time is about a K-th of the clients'; nothing is sent.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from flwr.common.secure_aggregation.ndarrays_arithmetic import (
    get_parameters_shape,
    parameters_addition,
    parameters_mod,
    parameters_subtraction,
)
from flwr.common.secure_aggregation.quantization import dequantize, quantize
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from measuring import Report, Row, Timing, options, publish

from bfl import randomness
from bfl.aggregation.pooling import pool, pooling_rules
from bfl.aggregation.pooling.base import Statistics, client_statistics, pool_statistics
from bfl.federation.secure_aggregation import client as half
from bfl.federation.secure_aggregation.keys import Unsigned
from bfl.federation.secure_aggregation.masking import (
    Ring,
    choose_exponents,
    decode_statistics,
    encode_statistics,
    neighbours_of,
)
from bfl.federation.secure_aggregation.server import SecureSum
from bfl.posteriors import Posterior

RULE = pooling_rules.create("log-linear-pool")
CELLS = (
    *("300000x4", "300000x16", "300000x64"),
    *("10000000x4", "10000000x16", "10000000x64"),
    *("100000000x4", "100000000x16", "100000000x64"),
)
"""Parameters and clients."""

STAGES = ("keys-and-shares", "clients", "server")
QUANTIZED_UP_TO = 300_000
"""Parameters of the cells that are made with Flower's encoding and masks as well."""

CLIPPING, LEVELS, MODULUS = 8.0, 2**22, 2**32
"""The defaults of Flower's SecAgg+."""


def posterior(number: int, size: int) -> Posterior:
    """Return a client's posterior, or the previous global one, which is number 0."""
    draw = randomness.generator(0, "benchmark", "secure", number)
    mean = draw.standard_normal(size, dtype=np.float32)
    mean *= np.float32(0.05)
    deviation = draw.random(size, dtype=np.float32)
    deviation *= np.float32(0.05)
    deviation += np.float32(0.001)
    return Posterior(mean, np.square(deviation, out=deviation))


class Clock:
    """Adds up the CPU seconds of each stage, which others on the machine do not change by much."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Add those of what is done inside."""
        started = time.process_time()
        yield
        self.seconds[stage] += time.process_time() - started


def measured(size: int, count: int) -> dict[str, Any]:
    """Return the errors and the CPU seconds of one cell."""
    previous, clock = posterior(0, size), Clock()
    weights = [1 / count] * count
    exponents = choose_exponents(RULE, previous, weights)

    def vector(client: int) -> Ring:
        update = posterior(client, size)
        with clock("clients"):
            statistics = client_statistics(RULE, update, weights[0], previous)
            return encode_statistics(statistics, exponents)

    total = added_up(size, count, vector, clock)
    with clock("server"):
        sums = decode_statistics(total.total(), exponents, size, 0)
        del total
        masked = pool_statistics(RULE, sums, weights, previous).posterior
        del sums
    direct = pool(RULE, _members(size, count), [1] * count, previous=previous).posterior
    return {
        "parameters": size,
        "clients": count,
        "masked": errors(masked, direct),
        "seconds": clock.seconds,
        **of_flower(size, count),
    }


def of_flower(size: int, count: int) -> dict[str, Any]:
    """Return the errors and the CPU seconds of a cell with Flower's own functions; None: not made.

    The seconds are of the same work as ours, but for its keys and shares.
    """
    if size > QUANTIZED_UP_TO:
        return {"quantized": None, "quantized-seconds": None}
    clock, previous = Clock(), posterior(0, size)
    found = quantized_pool(size, count, previous, clock)
    direct = pool(RULE, _members(size, count), [1] * count, previous=previous).posterior
    taken = {stage: clock.seconds[stage] for stage in STAGES if stage != "keys-and-shares"}
    return {"quantized": errors(found, direct), "quantized-seconds": taken}


def completed(cell: dict[str, Any]) -> dict[str, Any]:
    """Return a cell with what it lacks."""
    if cell["parameters"] > QUANTIZED_UP_TO or cell.get("quantized-seconds"):
        return cell
    return {**cell, **of_flower(cell["parameters"], cell["clients"])}


def _members(size: int, count: int) -> Iterator[Posterior]:
    return (posterior(number, size) for number in range(1, count + 1))


def added_up(size: int, count: int, vector: Callable[[int], Ring], clock: Clock) -> SecureSum:
    """Go through all stages but the last arithmetic, and return the server's half."""
    total = SecureSum("benchmark", range(1, count + 1), RULE.statistics * size, b"")
    states = {}
    with clock("keys-and-shares"):
        for client, asked in total.invitations().items():
            states[client], keys = half.advertise(asked, Unsigned())
            total.take_keys(client, keys)
        for client, roster in total.rosters().items():
            states[client], shares = half.share(states[client], roster, Unsigned())
            total.take_shares(client, shares)
    for client, delivery in total.deliveries().items():
        masked = vector(client)
        with clock("clients"):
            states[client] = half.mask_vector(states[client], delivery, masked, b"")
        with clock("server"):
            total.add_masked(client, masked)
        del masked
    with clock("keys-and-shares"):
        for client, survivors in total.confirmation_requests().items():
            states[client], told = half.confirm(states[client], survivors)
            total.take_confirmations(client, told)
        for client, heard in total.unmasking_requests().items():
            total.take_unmasking(client, half.unmask(states[client], heard))
    return total


def quantized_pool(size: int, count: int, previous: Posterior, clock: Clock) -> Posterior:
    """Return the pool of the same statistics as Flower's SecAgg+ encodes, masks and adds them.

    Its workflow and its clients' mod (``flwr`` 1.41): clipped, rounded at random, summed modulo
    2³², with as many neighbours as ours have; every client with the greatest weight, where its
    grid is the finest. Seeds of masks are there already.
    """
    np.random.seed(0)  # noqa: NPY002 - what Flower's rounding draws from
    total: list[Any] = []
    for client, (update, _, _) in enumerate(_members(size, count)):
        with clock("clients"):
            statistics = client_statistics(RULE, update, 1.0, previous).gaussian
            vector = quantize(list(statistics), CLIPPING, LEVELS)
            shape = get_parameters_shape(vector)
            vector = parameters_addition(vector, _mask(client, client, shape))
            for other in neighbours_of(client, range(count), "benchmark"):
                change = parameters_addition if client > other else parameters_subtraction
                vector = change(vector, _mask(client, other, shape))
            vector = parameters_mod(vector, MODULUS)
        with clock("server"):
            total = parameters_addition(total, vector) if total else vector
    with clock("server"):
        total = parameters_mod(total, MODULUS)
        for client in range(count):
            own = _mask(client, client, get_parameters_shape(total))
            total = parameters_subtraction(total, own)
        total = parameters_mod(total, MODULUS)
        mean = np.stack(dequantize(total, CLIPPING, LEVELS)) - (count - 1) * CLIPPING
        mean /= count
        return pool_statistics(RULE, Statistics(mean, np.zeros(0)), [1.0], previous).posterior


def _mask(one: int, other: int, shape: list[tuple[int, ...]]) -> list[Any]:
    """Return the mask that two clients share, or a client's own one, as Flower draws it."""
    seed = randomness.generator(0, "benchmark", "masks", *sorted((one, other))).bytes(32)
    return pseudo_rand_gen(seed, MODULUS, shape)


def errors(found: Posterior, wanted: Posterior) -> dict[str, float]:
    """Return the greatest error of a mean, in pooled standard deviations, and of a variance."""
    shift = found.mean - wanted.mean
    np.abs(shift, out=shift)
    shift /= np.sqrt(wanted.variance)
    ratio = found.variance / wanted.variance
    ratio -= 1
    return {"mean": float(shift.max()), "variance": float(np.abs(ratio, out=ratio).max())}


def rows_of(cell: Mapping[str, Any]) -> list[Row]:
    """Return the lines of a cell."""
    what = f"{cell['parameters'] / 1e6:g} M parameters, {cell['clients']} clients"
    rows = []
    for vector, unit in (("mean", "σ"), ("variance", "of it")):
        ours, other = cell["masked"][vector], cell["quantized"]
        beside = ("Flower's SecAgg+ encoding", Timing.of([other[vector]])) if other else ()
        rows.append(Row(f"{what}: error of a {vector}", unit, Timing.of([ours]), *beside))
    named = {"keys-and-shares": "keys and shares", "clients": "all clients' vectors"}
    for stage in STAGES:
        taken, other = Timing.of([cell["seconds"][stage]]), cell.get("quantized-seconds") or {}
        beside = ("Flower's SecAgg+", Timing.of([other[stage]])) if stage in other else ()
        rows.append(Row(f"{what}: {named.get(stage, stage)}", "CPU s", taken, *beside))
    return rows


def report(cells: Sequence[Mapping[str, Any]]) -> Report:
    """Return the report of cells."""
    notes = (
        "Log-linear pool, equal weights, all clients in one process and in turn; CPU seconds of "
        "all its threads.",
        "Errors are the greatest over all parameters, against the pool of the same clients' "
        "posteriors as they are; of a mean in pooled standard deviations, of a variance as a "
        "share of it. Float32, in which the pool is rounded, has an eps of 1.2e-7.",
        "Flower's SecAgg+ encoding: the same statistics, clipped at ±8 and rounded to 2²² levels "
        "by the functions of flwr itself, with the defaults of its workflow. Its seconds: these "
        "functions and those that draw, add and take off its masks, with as many neighbours.",
    )
    rows = [row for cell in cells for row in rows_of(cell)]
    return Report("secure_aggregation", "Secure aggregation in one process", rows, notes)


def main() -> None:
    """Make the cells that the file lacks, print the table, and write it if asked to."""
    parser = options(__doc__)
    parser.add_argument("--cells", nargs="+", default=CELLS, help="PARAMETERSxCLIENTS ...")
    given = parser.parse_args()
    output: Path | None = given.output
    cells = json.loads(output.read_text("utf-8"))["cells"] if output and output.exists() else []
    for text in given.cells:
        size, count = map(int, text.split("x"))
        old = {(cell["parameters"], cell["clients"]): cell for cell in cells}
        cell = old.get((size, count))
        new = completed(cell) if cell else measured(size, count)
        if new is cell:
            continue
        cells = [made for _, made in sorted({**old, (size, count): new}.items())]
        print(json.dumps(cells), flush=True)
        if output:
            write(cells, output)
    publish(report(cells), None)


def write(cells: Sequence[Mapping[str, Any]], output: Path) -> None:
    """Write the report with the cells that it is made of."""
    output.parent.mkdir(parents=True, exist_ok=True)
    content = {**report(cells).to_json(), "cells": cells}
    output.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
