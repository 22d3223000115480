"""Pooling: its speed next to that of copying memory, its memory, and how both grow.

    python benchmarks/pooling.py [--output FILE] [--runs N]

A rule's speed is that of the clients' bytes, each of which is read once. The copy's counts what it
reads and what it writes, of arrays far larger than any cache.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from measuring import Report, Row, Timing, alternate, last_lines, options, publish, row

from bfl import randomness
from bfl.aggregation.pooling import PoolingRule, pool, pooling_rules
from bfl.posteriors import Posterior

Vector = npt.NDArray[np.float32]

CLIENTS, PARAMETERS = 10, 10_000_000
GOAL = 0.5
COPIED = 50_000_000
"""Float32 numbers that are copied: 200 MB read and as many written."""

QUOTED = {
    "log-variance-averaging": 0.55,
    "naive-weighted-averaging": 2.0,
    "linear-pool": 3.3,
    "conflation": 3.8,
}
"""Seconds of the authors' PyTorch pipeline for 10 clients of 10 million parameters."""

QUOTED_POPULATION, POPULATION_PARAMETERS = 0.7, 59_000
"""Seconds of its population pooling, and of how many parameters."""

STREAMED = (10, 100, 1000)
STREAMED_PARAMETERS = 1_000_000
SIZES = (100_000, 1_000_000, 10_000_000, 100_000_000)
COUNTS = (10, 100, 1000)
LINEAR = 0.5
"""The cost of a client's parameter may double over three orders of magnitude, not more."""


def pattern(size: int, seed: int = 0) -> tuple[Vector, Vector]:
    """Return means and variances (size,)."""
    draw = randomness.generator(seed, "benchmark", "pooling")
    period = min(size, 1_000_003)
    mean = draw.standard_normal(period, dtype=np.float32)
    variance = draw.random(period, dtype=np.float32) + np.float32(0.1)
    return np.resize(mean, size), np.resize(variance, size)


def stream(count: int, size: int) -> Iterator[Posterior]:
    """Yield clients, made when they are asked for."""
    mean, variance = pattern(size)
    for k in range(count):
        yield Posterior(mean + np.float32(0.01 * k), variance * np.float32(1 + 0.01 * k))


def pooling_of(rule: PoolingRule, clients: Sequence[Posterior]) -> Callable[[], Any]:
    """Return a call that pools clients with different weights."""
    weights = [1.0 + k % 7 for k in range(len(clients))]

    def work() -> None:
        generators = [randomness.generator(0, "pooling", k) for k in range(len(clients))]
        pool(
            rule,
            clients,
            weights,
            previous=clients[0] if rule.uses_previous else None,
            generators=generators if rule.stochastic else None,
        )

    return work


def copying() -> Callable[[], Any]:
    """Return a call that copies 200 MB."""
    source, target = np.ones(COPIED, np.float32), np.zeros(COPIED, np.float32)
    return lambda: np.copyto(target, source)


def rule_rows(runs: int) -> tuple[list[Row], dict[str, Timing]]:
    """Return every rule next to the copy, and its seconds."""
    clients = list(stream(CLIENTS, PARAMETERS))
    given = 8e-9 * CLIENTS * PARAMETERS
    rows, taken = [], {}
    rules = [rule() for rule in pooling_rules.classes()]
    # The rules that draw random numbers are slower by far, and so have fewer runs of their own.
    for group, repeated in (
        ([rule for rule in rules if not rule.stochastic], runs),
        ([rule for rule in rules if rule.stochastic], min(runs, 2)),
    ):
        sides = {rule.name: pooling_of(rule, clients) for rule in group}
        times = alternate({"copy": copying(), **sides}, repeated)
        bandwidth = times.pop("copy").rate(8e-9 * COPIED)
        taken |= times
        for name, timing in times.items():
            what, ours = f"{name}, 10 × 10 M parameters: {timing.median:.3g} s", timing.rate(given)
            rows.append(row(what, "GB/s", ours, "copy", bandwidth, GOAL, rates=True))
    return rows, taken


def quoted_rows(taken: dict[str, Timing], runs: int) -> list[Row]:
    """Return the rows next to numbers that were not measured here."""
    clients = list(stream(CLIENTS, POPULATION_PARAMETERS))
    rule = pooling_rules.create("population-pooling")
    population = alternate({"": pooling_of(rule, clients)}, runs)[""]
    pairs = [(f"{name}, 10 × 10 M", taken[name], QUOTED[name]) for name in QUOTED]
    pairs.append(("population-pooling, 10 × 59 k", population, QUOTED_POPULATION))
    name = "authors' PyTorch pipeline, quoted"
    return [row(what, "s", ours, name, quoted) for what, ours, quoted in pairs]


def peak_memory(count: int) -> float:
    """Return the peak memory of a process that pools so many streamed clients, in MB."""
    return float(last_lines([sys.executable, __file__, "--streamed", str(count)])[0])


def pool_streamed(count: int) -> None:
    """Pool streamed clients; print the peak memory of this process in MB."""
    import resource

    rule = pooling_rules.create("linear-pool")
    pool(rule, stream(count, STREAMED_PARAMETERS), np.ones(count))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def memory_rows() -> list[Row]:
    """Return the peak memory for more and more clients."""
    peaks = {count: peak_memory(count) for count in STREAMED}
    least, what = STREAMED[0], "peak memory, linear-pool, {} streamed clients × 1 M parameters"
    return [
        row(what.format(count), "MB", peaks[count], f"{least} clients", peaks[least], 0.95)
        for count in STREAMED[1:]
    ]


def growth_rows(runs: int) -> list[Row]:
    """Return the time per client and parameter for more and more of both."""
    rule = pooling_rules.create("linear-pool")

    def each(count: int, size: int) -> Timing:
        clients = list(stream(count, size))
        repeated = runs if count * size < 50_000_000 else min(runs, 2)
        taken = alternate({"": pooling_of(rule, clients)}, repeated)[""]
        scale = 1e9 / (count * size)
        return Timing(taken.median * scale, taken.low * scale, taken.high * scale, taken.runs)

    rows = []
    for cases in ([(2, size) for size in SIZES], [(count, SIZES[0]) for count in COUNTS]):
        first = each(*cases[0])
        for count, size in cases[1:]:
            what = f"linear-pool, {count} clients × {size:.0e} parameters, each of them"
            fewest = f"{cases[0][0]} × {cases[0][1]:.0e}"
            rows.append(row(what, "ns", each(count, size), fewest, first, LINEAR))
    return rows


def main() -> None:
    """Measure and report."""
    parser = options(__doc__)
    parser.add_argument("--streamed", type=int, help="only pool so many streamed clients")
    given = parser.parse_args()
    if given.streamed:
        pool_streamed(given.streamed)
        return
    memory = memory_rows()
    rules, taken = rule_rows(given.runs)
    report = Report(
        name="pooling",
        title="Pooling: speed next to a copy, memory, growth",
        rows=[
            *rules,
            *quoted_rows(taken, given.runs),
            *memory,
            *growth_rows(given.runs),
        ],
        notes=(
            "one thread; means and variances in float32, sums in float64.",
            "A rule's GB/s are the clients' bytes, each read once; the copy's are those read and "
            f"those written, of {8 * COPIED // 10**6} MB in all, in turn with the rules.",
            "The numbers of the authors' pipeline are quoted, from another machine.",
            "Growth: of the cost of one parameter of one client; the result's own cost is shared "
            "by the clients.",
        ),
    )
    publish(report, given.output)


if __name__ == "__main__":
    main()
