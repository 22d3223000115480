#!/usr/bin/env python
"""The spreads of Table 4 of Ozer et al. (2022), derived from what their code does; NumPy alone.

    python scripts/ozer2022_as_coded.py            # prints the tables
    python scripts/ozer2022_as_coded.py --write    # into docs/results/ozer2022-as-coded.md

In the authors' code a weight's standard deviation is exp(α/2), with α clamped to [−8, 8] wherever
it is used. Every α begins at −9, below the clamp, where neither the likelihood nor the divergence
has a gradient: only weight decay moves it. So the final spreads can be derived without an image:
from the number of steps of each client (its number of examples), from what weight decay and, above
−8, the divergence do in a step, and from the pooling rules with their clamps. The likelihood is
left out altogether, and so is what clients' means differ by, on which population pooling depends.

The sizes of the clients are drawn as there (Li et al., 2022, with balancing), and from NumPy's
legacy generator with the published seeds 0 to 4, so they are those of the published runs.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).resolve().parent.parent
PUBLISHED = ROOT / "configs" / "ozer2022" / "published"
PAGE = ROOT / "docs" / "results" / "ozer2022-as-coded.md"

Array = npt.NDArray[np.floating]
Sizes = npt.NDArray[np.int64]

CLASSES = {
    "fmnist": (6000,) * 10,
    "cifar10": (5000,) * 10,
    "svhn": (4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659),
}
"""Training examples of each class, in the order of the labels."""

WEIGHTS = {
    name: features * 120 + 120 * 84 + 84 * 10
    for name, features in (("fmnist", 256), ("cifar10", 400), ("svhn", 400))
}
"""D: the weights of the three dense layers, whose biases and whose convolutions are points."""

SEEDS = range(5)
ROUNDS = {10: 50, 100: 500}
SAMPLED, EPOCHS, BATCH, CONCENTRATION, LEAST = 10, 10, 64, 0.5, 10
RATE, MOMENTUM, DECAY = np.float32(0.01), np.float32(0.9), np.float32(1e-5)
BEGIN, CLAMP = -9.0, 8.0


# ------------------------------------------------------------------------------ the clients


def client_sizes(generator: np.random.RandomState, classes: Sequence[int], clients: int) -> Sizes:
    """Return the clients' numbers of examples, (K,), with the draws of the balanced partition.

    Shuffles are made for the draws that they take alone.
    """
    share = sum(classes) / clients
    while True:
        sizes = np.zeros(clients, np.int64)
        for count in classes:
            generator.shuffle(np.arange(count))
            parts = generator.dirichlet(np.full(clients, CONCENTRATION)) * (sizes < share)
            cuts = (np.cumsum(parts / parts.sum()) * count).astype(int)[:-1]
            sizes += np.diff([0, *cuts, count])
        if sizes.min() >= LEAST:
            break
    for size in sizes:
        generator.shuffle(list(range(size)))
    return sizes


def trained_sizes(seed: int, classes: Sequence[int], clients: int) -> Sizes:
    """Return the examples of those who train, in the order of their pooling, (rounds, 10)."""
    generator = np.random.RandomState(seed)

    def orders() -> list[npt.NDArray[np.int64]]:
        orders = [np.arange(clients) for _ in range(ROUNDS[clients])]
        for order in orders:
            generator.shuffle(order)
        return orders

    # With 100 clients all rounds' are drawn before the partition, with 10 each in its round.
    before = orders() if clients > SAMPLED else None
    sizes = client_sizes(generator, classes, clients)
    return np.stack([sizes[order[:SAMPLED]] for order in before or orders()])


# ------------------------------------------------------------------------- local training


def trained(alpha: Array, examples: Sizes, *, clamp: bool) -> Array:
    """Return the log-variances after a round's local epochs, float32 in the shape of ``examples``.

    Each step is PyTorch's, in float32: g ← g + λα, v ← mv + g, α ← α − ηv, the velocity v
    beginning at 0, with g the gradient of KL[N(μ, exp α) ‖ N(0, 1)] / N by α, ½ (exp α − 1) / N,
    or 0 where α lies outside the clamp. float32 matters: at 9 a step of weight decay is some nine
    of its spacings, and rounding makes it 2 % smaller.

    Args:
        alpha: Log-variances, of a shape that broadcasts to that of ``examples``.
        examples: N, the clients' examples.
        clamp: Whether they are clamped in the forward pass.
    """
    shape = examples.shape
    value = np.broadcast_to(alpha, shape).astype(np.float32).ravel()
    count = examples.astype(np.float32).ravel()
    steps = (EPOCHS * -(-examples // BATCH)).ravel()
    # Those with the most steps first: who has made all of theirs is cut off behind.
    order = np.argsort(-steps, kind="stable")
    value, half = value[order], (np.float32(0.5) / count)[order]
    velocity = np.zeros_like(value)
    left = np.searchsorted(-steps[order], -np.arange(steps.max()), side="left")
    for active in left:
        here = value[:active]
        gradient = (np.exp(here) - np.float32(1)) * half[:active]
        if clamp:
            gradient *= here >= -CLAMP
        velocity[:active] = MOMENTUM * velocity[:active] + (gradient + DECAY * here)
        here -= RATE * velocity[:active]
    result = np.empty_like(value)
    result[order] = value
    return result.reshape(shape)


# ------------------------------------------------------------------------------- the rules

Rule = Callable[[Array, Array], Array]
"""Takes log-variances (..., K) and weights (..., K), gives the pooled log-variances (...,)."""


def variances(alpha: Array) -> Array:
    """Return the variances as the code reads log-variances, clamped."""
    return np.exp(np.clip(alpha, -CLAMP, CLAMP))


def partial_sums(terms: Array) -> Array:
    """Return the logarithm of a sum of which every partial sum is clamped before it is added to."""
    total = terms[..., 0]
    for term in np.moveaxis(terms[..., 1:], -1, 0):
        total = np.maximum(total, math.exp(-CLAMP)) + term
    return np.log(total)


AS_CODED: Mapping[str, Rule] = {
    "EAA": lambda a, w: partial_sums(w * variances(a)),
    "GAA": lambda a, w: partial_sums(w**2 * variances(a)),
    "AALV": lambda a, w: (w * a).sum(-1),  # the only one whose log-variances are not clamped
    "PPA": lambda a, w: np.log((w * variances(a)).sum(-1)),
    "CF": lambda a, w: np.log(w.max(-1) / (w / variances(a)).sum(-1)),
}


def log_of_sum(alpha: Array, weights: Array) -> Array:
    """Return log Σ w exp(α), however small or large the exponentials are."""
    greatest = alpha.max(-1, keepdims=True)
    total = (weights * np.exp(alpha - greatest)).sum(-1)
    return np.asarray(np.log(total) + greatest[..., 0])


AS_WRITTEN: Mapping[str, Rule] = {
    "EAA": log_of_sum,
    "GAA": lambda a, w: log_of_sum(a, w**2),
    "AALV": lambda a, w: (w * a).sum(-1),
    "PPA": log_of_sum,
    "CF": lambda a, w: np.log(w.max(-1)) - log_of_sum(-a, w),
}


# ---------------------------------------------------------------------------- the derivation


@dataclass(frozen=True)
class Spread:
    """A cell of Table 4 or its derivation: mean and standard error of five runs' spreads."""

    mean: float
    error: float

    @classmethod
    def of(cls, runs: Array) -> Spread:
        """Return that of runs (5,)."""
        return cls(float(runs.mean()), float(runs.std(ddof=1) / math.sqrt(runs.size)))

    def __str__(self) -> str:
        if self.mean < 1e-3:
            return "< 0.001"
        return f"{self.mean:.2f} ± {self.error:.2f}"


Cells = dict[tuple[int, str, str], Spread]
"""By clients, aggregation and data set."""


def derived(rules: Mapping[str, Rule], *, clamp: bool, rounds: Mapping[int, int] = ROUNDS) -> Cells:
    """Return the spread √(Σ σ²) of the final models, D exp(α) under the root.

    Args:
        rules: The pooling rules.
        clamp: Whether log-variances are clamped in the forward pass.
        rounds: How many of the rounds are made, by the number of clients.
    """
    cells: Cells = {}
    for clients in ROUNDS:
        # (data sets, seeds, rounds, clients of a round)
        sizes = np.stack(
            [[trained_sizes(seed, CLASSES[name], clients) for seed in SEEDS] for name in CLASSES]
        )
        alpha = np.full((len(rules), len(CLASSES), len(SEEDS)), BEGIN)
        for number in range(rounds[clients]):
            examples = sizes[:, :, number]
            weights = examples / examples.sum(-1, keepdims=True)
            every = np.broadcast_to(examples, (len(rules), *examples.shape))
            own = trained(alpha[..., None], every, clamp=clamp).astype(np.float64)
            alpha = np.stack(
                [rule(a, weights) for rule, a in zip(rules.values(), own, strict=True)]
            )
        for at, rule in enumerate(rules):
            for which, name in enumerate(CLASSES):
                runs = np.sqrt(WEIGHTS[name] * np.exp(alpha[at, which]))
                cells[clients, rule, name] = Spread.of(runs)
    return cells


def published_spreads() -> Cells:
    """Return Table 4."""
    with (PUBLISHED / "table4.csv").open(encoding="utf-8", newline="") as stream:
        return {
            (int(line["clients"]), line["aggregation"], line["dataset"]): Spread(
                float(line["std_norm"]), float(line["std_norm_se"])
            )
            for line in csv.DictReader(stream)
        }


# ---------------------------------------------------------------------- what Tables 1 and 3 say

PAIRS = (("AALV", "CF"), ("AALV", "GAA"), ("GAA", "CF"), ("AALV", "EAA"), ("AALV", "PPA"))


@dataclass(frozen=True)
class Agreement:
    """How far the published rows of two rules lie apart, in standard errors of a difference.

    Attributes:
        cells: The number of pairs of published means.
        root_mean_square: That of the differences; of rows of one distribution about 1, a little
            more since the errors come from five runs each.
        beyond: How many are more than 2.
    """

    cells: int
    root_mean_square: float
    beyond: int


def agreement(table: str, one: str, other: str, metric: str) -> Agreement:
    """Compare two rules in all cells of a published table: models, partitions and data sets."""
    with (PUBLISHED / f"{table}.csv").open(encoding="utf-8", newline="") as stream:
        lines = list(csv.DictReader(stream))
    of = {
        rule: {
            (line["model"], line["partition"], line["dataset"]): (
                float(line[f"{metric}_pct"]),
                float(line[f"{metric}_se"]),
            )
            for line in lines
            if line["aggregation"] == rule
        }
        for rule in (one, other)
    }
    apart = np.array(
        [
            (mean - of[other][cell][0]) / math.hypot(error, of[other][cell][1])
            for cell, (mean, error) in of[one].items()
        ]
    )
    return Agreement(
        apart.size, float(np.sqrt(np.mean(apart**2))), int(np.count_nonzero(np.abs(apart) > 2))
    )


# --------------------------------------------------------------------------------- the page


def spread_table() -> list[str]:
    """Return Table 4: published, derived from the code, and derived from the rules as written."""
    published, coded = published_spreads(), derived(AS_CODED, clamp=True)
    written = derived(AS_WRITTEN, clamp=False)
    lines = [
        "| clients | rule | data | published | code, derived | difference | rule, derived |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (clients, rule, name), cell in published.items():
        ours = coded[clients, rule, name]
        difference = f"{100 * (ours.mean / cell.mean - 1):+.1f} %".replace("-0.0", "+0.0")
        asked = written[clients, rule, name]
        # Without the disagreement of the clients' means it is a lower bound.
        bound = ("at least ", "") if rule == "PPA" else ("", difference)
        row = (clients, rule, name, cell, f"{bound[0]}{ours}", bound[1], f"{bound[0]}{asked}")
        lines.append("| " + " | ".join(map(str, row)) + " |")
    return lines


def agreement_table() -> list[str]:
    """Return how far the rules' rows of Tables 1 and 3 lie apart."""
    lines = [
        "| table | rules | accuracy, rms | beyond 2 | ECE, rms | beyond 2 |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for table in ("table1", "table3"):
        for one, other in PAIRS:
            accuracy, calibration = (
                agreement(table, one, other, metric) for metric in ("accuracy", "ece")
            )
            lines.append(
                f"| {table[-1]} | {one}, {other} "
                f"| {accuracy.root_mean_square:.2f} | {accuracy.beyond} of {accuracy.cells} "
                f"| {calibration.root_mean_square:.2f} | {calibration.beyond} of "
                f"{calibration.cells} |"
            )
    return lines


TABLES: Mapping[str, Callable[[], list[str]]] = {
    "spreads": spread_table,
    "agreement": agreement_table,
}


def page_with(text: str, name: str, lines: Sequence[str]) -> str:
    """Return the page with what stands between a table's marks replaced."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    head, _, rest = text.partition(begin)
    _, found, tail = rest.partition(end)
    if not found:
        raise SystemExit(f"{PAGE.name} has no '{begin.strip()}' with '{end}' after it")
    return head + begin + "\n" + "\n".join(lines) + "\n\n" + end + tail


def main() -> None:
    """Print the tables, or write them into the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.relative_to(ROOT)}")
    if not parser.parse_args().write:
        print("\n\n".join("\n".join(table()) for table in TABLES.values()))
        return
    text = PAGE.read_text(encoding="utf-8")
    for name, table in TABLES.items():
        text = page_with(text, name, table())
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
