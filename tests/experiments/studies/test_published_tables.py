"""What papers have published, in the units of the studies' tables."""

import hashlib
from pathlib import Path

import pytest

from bfl.experiments.studies import read_study

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
# SHA-256 of the tables: each was compared with its paper, digit by digit, when it was written.
DIGESTS = {
    "fedbe2021": "c3 3a4c19c6e1f9 c4 cdab22ffe2ad c5 8ba98a599d5a figure5 0ad694946b63 "
    "scaffold b158311bbd35 table1 5dd02f731985 table2 2a1757d7259a table3 d12a6f4bb101 "
    "table4 e8bdabe5ec28 table5 b8a8b11b752b table6 c96faca85ae6 table7 7dfa87ab57a3 "
    "table8-distilled 5581dd2eed50 table8 b6a4b1b3a332 table9 8531af1ef140",
    "fischer2024": "table1 638cff5e0335 table2 f3a1881a0a8c table3 3235b9c04e96 "
    "table4 bef70570713c table5 acffff5f7767",
    "hbfl2023": "table4 e18de8a92717 tables1-3 8e1b80821191",
    "ozer2022": "table1 c163454f9f5b table3 cc2a119d427e table4 a53864473d0f table5 f38e32fcbde1",
}


def test_published_numbers_are_the_papers() -> None:
    found = {}
    for paper in DIGESTS:
        files = sorted((CONFIGS / paper / "published").glob("*.csv"))
        pairs = [(file.stem, hashlib.sha256(file.read_bytes()).hexdigest()[:12]) for file in files]
        found[paper] = " ".join(word for pair in pairs for word in pair)
    assert found == DIGESTS
    assert len(list(CONFIGS.rglob("*.csv"))) == sum(len(d.split()) // 2 for d in DIGESTS.values())


FLIPOUT = {"model": "Flipout", "weighting": "train-size"}
TABLE_4 = {"aggregation": "WS", "pretrain": "yes"}
CIFAR10 = {"dataset": "cifar10", "method": "HBFL", "partition": "dirichlet-0.05"}


@pytest.mark.parametrize(
    ("study", "labels", "metric", "value", "spread"),
    [
        # A spread that is printed as 0.056 is one in percent.
        ("fischer2024/table2", FLIPOUT | {"aggregation": "WS"}, "accuracy", 53.52, 5.6),
        ("fischer2024/table2", FLIPOUT | {"aggregation": "WS"}, "nll", 1.41, None),
        ("fischer2024/table4", TABLE_4 | {"partition": "iid"}, "accuracy", None, 0.8),
        ("fischer2024/table4", TABLE_4 | {"partition": "dirichlet-5.0"}, "accuracy", None, 2.0),
        ("fischer2024/table4", TABLE_4 | {"partition": "2-class"}, "accuracy", None, 1.02),
        ("fischer2024/table4", {"aggregation": "DWC", "pretrain": "yes"}, "accuracy", None, 0.27),
        # Clients are counted from 1 in the papers, and from 0 as partition ids are.
        ("hbfl2023/tables1-3", CIFAR10, "best-accuracy", 62.69, None),
        ("hbfl2023/tables1-3", CIFAR10, "client-0-best-better-accuracy", 99.16, None),
        ("hbfl2023/tables1-3", CIFAR10, "client-9-best-better-accuracy", 92.75, None),
        ("hbfl2023/table4", {"method": "HBFL"}, "client-0-best-better-accuracy", 75.2, None),
        ("hbfl2023/table4", {"method": "HBFL"}, "client-1-best-better-accuracy", 40.13, None),
    ],
)
def test_published_numbers_are_read_in_the_units_of_the_tables(
    study: str, labels: dict[str, str], metric: str, value: float | None, spread: float | None
) -> None:
    table = read_study(CONFIGS / f"{study}.toml").published
    assert table is not None
    where = {"partition": "2-class" if study.endswith("table2") else "iid", **labels}
    lines = [
        line
        for key, line in table.lines.items()
        if where.items() & dict(key).items() == {(k, v) for k, v in where.items() if k in dict(key)}
    ]
    [entry] = [line["negative-log-likelihood" if metric == "nll" else metric] for line in lines]
    assert value is None or entry[0] == value
    assert spread is None or entry[1] == pytest.approx(spread)
