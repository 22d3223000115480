#!/usr/bin/env python
"""Pick one configuration of each method, and write the study that compares them.

    bfl study configs/which-rule/digits-tried.toml --backend serial
    python scripts/picks.py configs/which-rule/digits-tried.toml

By docs/results/protocol.md: the least mean NLL, over the seeds, of images held back from the
clients' training data, after the closing where there is one. The study is written beside the file,
as ``digits-picked.toml``. It extends what that file extends, and has its base, but for what was
there for picking alone.

    python scripts/picks.py configs/which-rule/digits-rivals-tried.toml --beside digits-picked.toml

Rivals of an earlier comparison, in whose folder their file is, run again beside its FedAvg.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import tomli_w

import bfl
from bfl.errors import ConfigurationError
from bfl.experiments.results.table import VALIDATION, markdown_table
from bfl.experiments.studies.study import read_study
from bfl.experiments.studies.table import StudyTable

METRIC = f"{VALIDATION}negative-log-likelihood"
MOST = 8
"""The most configurations of a method."""

SEEDS = 10
"""The number of seeds of the comparison, which no configuration is picked with."""

PARTITIONS: list[dict[str, Any]] = [
    {"label": "iid", "partition": "iid"},
    {"label": "dirichlet-0.5", "partition": "dirichlet", "alpha": 0.5},
    {"label": "dirichlet-0.1", "partition": "dirichlet", "alpha": 0.1},
    {"label": "2-class", "partition": "shards", "shards-per-client": 2},
    {"label": "sites", "partition": "column:site"},
    {
        "label": "tested on va",
        "partition": "column:site",
        "test-sites": "site:va",
        "clients": 3,
    },
]
DEARER = ("IVON", "WS", "Bayesian ADMM", "Laplace")
"""Methods that are compared with 40 rounds of FedAvg as well, since they cost more."""

PICKING = ("server-labels", "ood-dataset")
"""Keys that a file of configurations to pick from sets otherwise than the comparison."""


def claims(methods: list[str], partitions: list[str]) -> list[dict[str, Any]]:
    """Return the family of a comparison: declared here, before there are runs."""
    unequal = [name for name in partitions if name not in {"iid", "dirichlet-0.1"}]
    first = [name for name in methods if name == "IVON"]  # on every partition
    others = [name for name in methods if name not in {"IVON", "FedAvg"}]
    return [
        {
            "metric": "negative-log-likelihood",
            "better": {"method": better, "partition": names},
            "worse": {"method": worse},
        }
        for better, worse, names in (
            (first, "FedAvg", partitions),
            (others, "FedAvg", unequal),
            (first, "FedAvg, 40 rounds", partitions),
            ([name for name in others if name in DEARER], "FedAvg, 40 rounds", unequal),
        )
        if better
    ]


def picks(table: StudyTable, seeds: Iterable[int]) -> pd.DataFrame:
    """Return the picked configurations, a row a method: its setting, the NLL, and how many tried.

    Raises:
        ConfigurationError: A run is left to be made, methods have unequal numbers of
            configurations, or one of more than ``MOST``, or a seed is one of the comparison.
    """
    frame = table.results.frame
    if table.results.states:
        raise ConfigurationError(
            f"{len(table.results.states)} runs of {table.study.source} are left"
        )
    if shared := {int(seed) for seed in frame["seed"]} & set(seeds):
        raise ConfigurationError(
            f"{table.study.source}: seeds {sorted(shared)} are the comparison's"
        )
    last = table.results.numbers(METRIC)
    means = frame.assign(NLL=last).groupby(["method", "setting"], sort=False).NLL.mean()
    tried = means.groupby("method", sort=False).size()
    if tried.nunique() > 1 or tried.max() > MOST:
        raise ConfigurationError(
            f"{table.study.source} has {tried.to_dict()} configurations; allowed: as many of each "
            f"method, at most {MOST}"
        )
    picked = means.loc[means.fillna(float("inf")).groupby("method", sort=False).idxmin()]
    return picked.reset_index().assign(tried=int(tried.max()))


def comparison(
    table: StudyTable,
    picked: pd.DataFrame,
    partitions: list[str],
    seeds: Iterable[int],
    beside: Path | None = None,
    lean: bool = False,
) -> str:
    """Return the study's file that compares the picked configurations on other seeds.

    Args:
        lean: Whether its runs have no foreign images and no figures.
    """
    tried = tomllib.loads(table.study.source.read_text(encoding="utf-8"))
    chosen = {(row.method, row.setting) for row in picked.itertuples()}
    rows: list[dict[str, Any]] = [
        {"label": {"method": row.labels["method"]}, **row.values}
        for row in table.study.rows
        if (row.labels["method"], row.labels["setting"]) in chosen
    ]
    if beside:
        rows = [
            {"label": row.labels, **row.values}
            for row in read_study(beside).rows
            if row.labels["method"] == "FedAvg"
        ] + rows
    # 20 rounds of IVON or Flipout cost about twice FedAvg's: what FedAvg does with as much.
    longer = {"label": {"method": "FedAvg, 40 rounds"}, "rounds": 40}
    rows += [{**row, **longer} for row in rows if row["label"]["method"] == "FedAvg"]
    base = {key: value for key, value in tried.get("base", {}).items() if key not in PICKING}
    columns = {}
    if lean:
        base |= {"ood-dataset": "", "figures": "none"}
        extended = read_study(table.study.source.parent / tried["extends"]).columns
        shown = [c.model_dump(exclude_defaults=True) for c in extended if "ood-" not in c.metric]
        columns = {"columns": shown}
    tables = {
        "extends": beside.name if beside else tried["extends"],
        "title": "Which rule, equally tuned"
        + (", rivals: " if beside else ": ")
        + table.study.title.partition(": ")[2].replace(", Dirichlet 0.5", ""),
        "name": table.study.name.replace("-tried", "-picked"),
        **({"base": {**base, "server-labels": False}} if base else {}),
        "axes": {
            "seed": list(seeds),
            "partition": [each for each in PARTITIONS if each["label"] in partitions],
        },
        "rows": rows,
        "claims": claims(picked.method.tolist(), partitions),
        **columns,
    }
    head = (
        f"# Written by scripts/picks.py from {table.study.source.name}: docs/results/protocol.md\n"
    )
    return head + tomli_w.dumps(tables)


def main() -> None:
    """Pick, print what was picked, and write the comparison."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("study", type=Path, help="the study of what is tried")
    labels = [each["label"] for each in PARTITIONS]
    parser.add_argument("--partitions", nargs="+", choices=labels, default=labels[:4])
    parser.add_argument("--beside", help="the comparison whose FedAvg these are rivals of")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--lean", action="store_true", help="no foreign images, no figures")
    given = parser.parse_args()
    seeds = range(given.first_seed, given.first_seed + SEEDS)
    path = given.study
    table = bfl.study(path)
    picked = picks(table, seeds)
    print(markdown_table(picked.round(4)), end="")
    if METRIC not in table.results.frame:
        print("before the closing: these runs were not evaluated on held-back images after it")
    to = path.with_name(path.name.replace("-tried", "-picked"))
    beside = path.with_name(given.beside) if given.beside else None
    to.write_text(
        comparison(table, picked, given.partitions, seeds, beside, given.lean),
        encoding="utf-8",
    )
    print(to)


if __name__ == "__main__":
    main()
