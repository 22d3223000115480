#!/usr/bin/env python
"""The spreads of Table 4 of Ozer et al. (2022), derived from what their code does.

    python scripts/ozer2022_as_coded.py            # prints the tables
    python scripts/ozer2022_as_coded.py --write    # into docs/results/ozer2022-as-coded.md
    python scripts/ozer2022_as_coded.py --record FOLDER    # keeps a run of spread.toml

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
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ozer2022_spreads import (
    AS_CODED,
    AS_WRITTEN,
    BEGIN,
    CLAMP,
    CLASSES,
    ROUNDS,
    SEEDS,
    WEIGHTS,
    Array,
    Rule,
    trained,
    trained_sizes,
    variances,
)
from pages import section_written

ROOT = Path(__file__).resolve().parent.parent
PUBLISHED = ROOT / "configs" / "ozer2022" / "published"
PAGE = ROOT / "docs" / "results" / "ozer2022-as-coded.md"
FEWER = {"fmnist": (1200,) * 10}
"""The images of the reduced studies, a fifth of all."""
VERSIONS = ("bfl", "python", "tensorflow", "tensorflow-probability", "numpy")
MACHINE = ("processor", "processor-family", "vector-instructions")
RUNS = PAGE.with_suffix("")
"""Folder of the runs' kept results, one JSON file each."""


@dataclass(frozen=True)
class Spread:
    """A cell of Table 4 or its derivation: mean and standard error of five runs' spreads."""

    mean: float
    error: float

    @classmethod
    def of(cls, runs: Array) -> Spread:
        """Return the spread of runs (5,)."""
        return cls(float(runs.mean()), float(runs.std(ddof=1) / math.sqrt(runs.size)))

    def __str__(self) -> str:
        if self.mean < 1e-3:
            return "< 0.001"
        return f"{self.mean:.2f} ± {self.error:.2f}"


Cells = dict[tuple[int, str, str], Spread]
"""By clients, aggregation and data set."""


def derived(
    rules: Mapping[str, Rule],
    *,
    clamp: bool,
    rounds: Mapping[int, int] = ROUNDS,
    classes: Mapping[str, tuple[int, ...]] = CLASSES,
) -> Cells:
    """Return the spread √(Σ σ²) of the final models, D exp(α) under the root.

    Args:
        clamp: Whether log-variances are clamped in the forward pass.
        rounds: How many of the rounds are made, by the number of clients.
        classes: Training examples of each class, by the data set.
    """
    cells: Cells = {}
    for clients in rounds:
        # (data sets, seeds, rounds, clients of a round)
        sizes = np.stack(
            [[trained_sizes(seed, classes[name], clients) for seed in SEEDS] for name in classes]
        )
        alpha = np.full((len(rules), len(classes), len(SEEDS)), BEGIN)
        for number in range(rounds[clients]):
            examples = sizes[:, :, number]
            weights = examples / examples.sum(-1, keepdims=True)
            every = np.broadcast_to(examples, (len(rules), *examples.shape))
            own = trained(alpha[..., None], every, clamp=clamp).astype(np.float64)
            alpha = np.stack(
                [rule(a, weights) for rule, a in zip(rules.values(), own, strict=True)]
            )
        for at, rule in enumerate(rules):
            for which, name in enumerate(classes):
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
    """Distance of the published rows of two rules, in standard errors of a difference.

    Attributes:
        cells: The number of pairs of published means.
        root_mean_square: The root mean square of the differences; of rows of one distribution about
            1, a little more since the errors come from five runs each.
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


# ------------------------------------------------------------------------------- runs of ours


def mean_over_orders(terms: Array) -> Array:
    """Return the logarithm of the sums of ``partial_sums``, on average over all orders."""
    shortfall = np.maximum(math.exp(-CLAMP) - terms, 0.0)
    return np.asarray(np.log(terms.sum(-1) + shortfall.mean(-1)))


OURS: Mapping[str, tuple[str, Rule]] = {
    "log-variance-averaging": ("AALV", AS_CODED["AALV"]),
    "weighted-conflation": ("CF", AS_CODED["CF"]),
    "clamped-naive-weighted-averaging": (
        "EAA",
        lambda a, w: mean_over_orders(w * variances(a)),
    ),
    "clamped-weighted-sum-of-normals": (
        "GAA",
        lambda a, w: mean_over_orders(w**2 * variances(a)),
    ),
    "population-pooling": ("PPA", AS_CODED["PPA"]),
}
"""The rules of this project that are the code's, by the key ``pooling``."""


def recorded(folder: Path) -> dict[str, Any]:
    """Return what is kept of a run: its configuration, its clients' examples and its spreads."""
    from bfl.experiments.results.run_folder import config_of

    texts = {
        name: (folder / name).read_text(encoding="utf-8")
        for name in ("config.toml", "rounds.jsonl", "run.json")
    }
    rounds = [json.loads(line) for line in texts["rounds.jsonl"].splitlines()]
    of_this_machine = ("data-dir", "output-dir", "resume")
    known = json.loads(texts["run.json"])
    environment = known["environment"]
    return {
        "configuration": {
            key: value
            for key, value in config_of(texts["config.toml"].encode()).items()
            if key not in of_this_machine
        },
        "examples": known["partition"]["num_examples"],
        "spreads": [entry["degree-of-spread"] for entry in rounds],
        "seconds": round(sum(entry["seconds"] for entry in rounds), 1),
        "posterior-sha256": rounds[-1]["posterior-sha256"],
        "versions": {name: environment[name] for name in VERSIONS},
        "machine": {name: environment[name] for name in MACHINE},
    }


def derived_of(run: Mapping[str, Any], rounds: int) -> list[float]:
    """Return the spreads that a run ought to have after each of its first rounds."""
    settings, examples = run["configuration"], np.array(run["examples"])
    batch, temperature = int(settings["batch-size"]), float(settings["temperature"])
    _, rule = OURS[settings["pooling"]]
    weights = examples / examples.sum()
    alpha, spreads = np.array([BEGIN]), []
    for _ in range(rounds):
        own = trained(alpha, examples, clamp=True, batch=batch, temperature=temperature)
        alpha = rule(own.astype(np.float64), weights)[None]
        spreads.append(math.sqrt(WEIGHTS["fmnist"] * math.exp(float(alpha[0]))))
    return spreads


def runs() -> list[dict[str, Any]]:
    """Return the runs that have been kept."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RUNS.glob("*.json"))]


MET = ("AALV", "GAA", "CF")
"""The rules whose published spreads runs are to meet: EAA's varies by seed, PPA's by images."""


def last_spreads(kept: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the mean last spread of the runs with all rounds, by rule."""
    ends: dict[str, list[float]] = {}
    for run in kept:
        if len(run["spreads"]) == ROUNDS[10]:
            rule = OURS[run["configuration"]["pooling"]][0]
            ends.setdefault(rule, []).append(run["spreads"][-1])
    return {rule: float(np.mean(found)) for rule, found in ends.items()}


def unmet(kept: Sequence[Mapping[str, Any]], within: float = 0.02) -> list[str]:
    """Return the rules of ``MET`` whose runs with all rounds end elsewhere than published."""
    published = published_spreads()
    return [
        rule
        for rule, end in last_spreads(kept).items()
        if rule in MET and abs(end / published[10, rule, "fmnist"].mean - 1) > within
    ]


def _shown(spreads: Sequence[float]) -> str:
    """Return the spreads after each round, or after each tenth of more than ten."""
    chosen = spreads if len(spreads) <= 10 else spreads[9::10]
    return ", ".join(f"{value:.3f}" for value in chosen)


def table_lines(heads: str, rows: Iterable[Sequence[object]]) -> list[str]:
    """Return a Markdown table of rows of cells, under heads with " | " between them."""
    names = heads.split(" | ")
    every = [names, ["---"] * len(names), *rows]
    return [f"| {' | '.join(map(str, row))} |" for row in every]


def run_table() -> list[str]:
    """Return runs of ours next to what the derivation gives for their clients and rounds."""
    kept, rows = runs(), []
    for run in kept:
        rule, settings = OURS[run["configuration"]["pooling"]][0], run["configuration"]
        count, asked = len(run["spreads"]), derived_of(run, ROUNDS[10])
        bound = "at least " if rule == "PPA" else ""
        sizes = f"{sum(run['examples'])}, {settings['batch-size']}"
        row = [rule, sizes, f"{count} of {ROUNDS[10]}", _shown(run["spreads"])]
        derivation = (f"{bound}{_shown(asked[:count])}", f"{bound}{asked[-1]:.3f}")
        rows.append([*row, *derivation, f"{run['seconds']:.0f}"])
    published, ends = published_spreads(), last_spreads(kept)
    said = "; ".join(
        f"{rule} ends at {end:.2f}, published {published[10, rule, 'fmnist']}"
        for rule, end in ends.items()
    )
    heads = "rule | examples, batch | rounds | spread after each, or each tenth | derived"
    lines = table_lines(f"{heads} | after all 50 | s", rows)
    return [*lines, "", f"Runs with all {ROUNDS[10]} rounds: {said or 'none'}."]


# --------------------------------------------------------------------------------- the page


def spread_table() -> list[str]:
    """Return Table 4: published, derived from the code, and derived from the rules as written."""
    published, coded = published_spreads(), derived(AS_CODED, clamp=True)
    written, rows = derived(AS_WRITTEN, clamp=False), []
    for (clients, rule, name), cell in published.items():
        ours = coded[clients, rule, name]
        difference = f"{100 * (ours.mean / cell.mean - 1):+.1f} %".replace("-0.0", "+0.0")
        asked = written[clients, rule, name]
        # Without the disagreement of the clients' means it is a lower bound.
        bound = ("at least ", "") if rule == "PPA" else ("", difference)
        both = (f"{bound[0]}{ours}", bound[1], f"{bound[0]}{asked}")
        rows.append((clients, rule, name, cell, *both))
    heads = "clients | rule | data | published | code, derived | difference | rule, derived"
    return table_lines(heads, rows)


def agreement_table() -> list[str]:
    """Return how far the rules' rows of Tables 1 and 3 lie apart."""
    rows = []
    for table in ("table1", "table3"):
        for one, other in PAIRS:
            row = [table[-1], f"{one}, {other}"]
            for metric in ("accuracy", "ece"):
                found = agreement(table, one, other, metric)
                row += [f"{found.root_mean_square:.2f}", f"{found.beyond} of {found.cells}"]
            rows.append(row)
    return table_lines("table | rules | accuracy, rms | beyond 2 | ECE, rms | beyond 2", rows)


def fewer_images_table() -> list[str]:
    """Return the spreads with all of Fashion-MNIST and with a fifth, in batches of one size."""
    of: list[Cells] = []
    for rules, clamp in ((AS_CODED, True), (AS_WRITTEN, False)):
        of += [derived(rules, clamp=clamp), derived(rules, clamp=clamp, classes=FEWER)]
    rows = [
        (clients, rule, *(cells[clients, rule, name] for cells in of))
        for clients, rule, name in of[1]
        if rule != "PPA"
    ]
    heads = "clients | rule | code, 60,000 images | code, 12,000 | rule, 60,000 | rule, 12,000"
    return table_lines(heads, rows)


TABLES: Mapping[str, Callable[[], list[str]]] = {
    "spreads": spread_table,
    "fewer images": fewer_images_table,
    "agreement": agreement_table,
    "runs": run_table,
}


def main() -> None:
    """Print the tables, or write them into the page, or keep a run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.relative_to(ROOT)}")
    parser.add_argument("--record", type=Path, metavar="FOLDER", help="the folder of a run to keep")
    given = parser.parse_args()
    if given.record:
        run = recorded(given.record)
        settings = run["configuration"]
        name = f"{OURS[settings['pooling']][0].lower()}-seed-{settings['seed']}.json"
        RUNS.mkdir(exist_ok=True)
        (RUNS / name).write_text(json.dumps(run, indent=2) + "\n", encoding="utf-8")
    if not given.write and not given.record:
        print("\n\n".join("\n".join(table()) for table in TABLES.values()))
    if not given.write:
        return
    text = PAGE.read_text(encoding="utf-8")
    for name, table in TABLES.items():
        text = section_written(text, name, table())
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
