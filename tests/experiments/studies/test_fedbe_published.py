"""The published numbers of FedBE's tables are, digit by digit, those that the paper prints."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "configs" / "fedbe2021" / "published"
ALL = "ConvNet ResNet20 ResNet32 ResNet44 ResNet56"
TWO, THREE = "ConvNet ResNet20", "ConvNet ResNet20 ResNet32"
# Each line as in the paper, without the networks: mean ± standard deviation over five runs, in %.
PAPER: dict[str, tuple[str, dict[str, str]]] = {
    "table1": (
        ALL,
        {
            "step, 1-Ensemble": "60.5±0.28 49.9±0.46 35.5±0.50 32.8±0.38 23.3±0.52",
            "step, FedAvg": "72.0±0.25 70.2±0.17 66.5±0.36 60.5±0.26 51.4±0.15",
            "step, v-Distillation": "69.2±0.18 72.6±0.62 68.4±0.33 60.4±0.53 56.4±1.10",
            "step, FedBE without SWA": "72.1±1.21 74.9±1.41 71.1±0.75 61.0±0.75 56.6±0.85",
            "step, FedBE": "74.5±0.51 77.5±0.42 72.7±0.27 65.5±0.32 60.7±0.45",
            "dirichlet-0.1, 1-Ensemble": "63.3±0.56 45.2±1.06 39.5±0.78 31.5±0.77 27.2±0.65",
            "dirichlet-0.1, FedAvg": "72.3±0.12 74.4±0.36 73.4±0.23 67.1±0.54 62.2±0.45",
            "dirichlet-0.1, v-Distillation": "67.7±0.98 73.1±0.78 70.8±0.64 66.9±0.85 62.8±0.66",
            "dirichlet-0.1, FedBE without SWA": (
                "70.1±0.42 75.9±0.56 73.9±0.55 68.2±0.72 63.2±0.71"
            ),
            "dirichlet-0.1, FedBE": "73.9±0.45 78.2±0.36 77.7±0.45 71.5±0.38 67.0±0.30",
        },
    ),
    "table2": (
        ALL,
        {
            "step, FedProx": "72.5±0.71 71.1±0.52 67.7±0.26 60.4±0.71 54.9±0.66",
            "step, FedBE + FedProx": "74.9±0.38 77.7±0.45 72.9±0.44 64.5±0.37 60.1±0.62",
            "step, FedAvgM": "72.3±0.55 73.2±0.57 70.0±0.62 59.9±0.65 52.7±0.49",
            "step, FedBE + FedAvgM": "74.5±0.47 78.0±0.46 73.6±0.50 65.5±0.40 59.7±0.51",
            "dirichlet-0.1, FedProx": "72.6±0.38 76.1±0.49 73.4±0.51 68.1±0.79 60.9±0.46",
            "dirichlet-0.1, FedBE + FedProx": "74.6±0.35 78.7±0.49 77.3±0.60 71.7±0.43 66.5±0.41",
            "dirichlet-0.1, FedAvgM": "73.0±0.43 76.5±0.44 75.5±0.79 67.7±0.46 58.9±0.72",
            "dirichlet-0.1, FedBE + FedAvgM": "74.4±0.49 78.5±0.66 78.5±0.26 72.0±0.51 67.0±0.55",
        },
    ),
    "table3": (
        TWO,
        {
            "A": "72.6±0.28 73.4±0.46",
            "S": "73.1±0.46 75.2±0.61",
            "S+A": "73.9±0.33 76.1±0.47",
            "A+C": "73.0±0.36 75.4±0.38",
            "S+C": "74.0±0.66 77.9±0.56",
            "S+A+C": "74.5±0.51 77.5±0.42",
            "ground truth": "76.6±0.21 80.2±0.23",
        },
    ),
    "table4": (
        ALL,
        {
            "step, CIFAR-10": "74.5±0.51 77.5±0.42 72.7±0.27 65.5±0.32 60.7±0.45",
            "step, CIFAR-100": "74.4±0.45 78.2±0.58 72.2±0.35 65.1±0.37 61.0±0.49",
            "step, Tiny-ImageNet": "74.5±0.64 77.1±0.51 72.3±0.43 64.5±0.51 60.9±0.32",
            "dirichlet-0.1, CIFAR-10": "73.9±0.45 78.2±0.36 77.7±0.45 71.5±0.38 67.0±0.30",
            "dirichlet-0.1, CIFAR-100": "73.5±0.41 78.6±0.63 76.5±0.61 72.0±0.71 66.9±0.57",
            "dirichlet-0.1, Tiny-ImageNet": "74.0±0.35 78.2±0.72 76.7±0.52 71.6±0.66 67.3±0.32",
        },
    ),
    "table5": (
        "ResNet20 MobileNetV2",
        {
            "i.i.d., FedAvg": "32.4±0.68 26.1±0.98",
            "i.i.d., FedBE": "35.4±0.58 28.9±1.15",
            "non-i.i.d., FedAvg": "27.5±0.78 25.5±1.23",
            "non-i.i.d., FedBE": "32.4±0.81 27.8±0.99",
        },
    ),
    "table6": (
        THREE,
        {
            "FedAvg": "70.6±0.46 69.9±0.59 64.0±0.50",
            "FedProx": "71.2±0.55 69.4±0.48 65.9±0.63",
            "FedBE": "73.3±0.56 77.1±0.61 70.2±0.39",
            "FedBE + FedProx": "73.7±0.24 77.5±0.51 71.6±0.37",
        },
    ),
    "table7": (
        TWO,
        {
            "0.1": "72.5±0.44 75.9±0.66",
            "0.5": "73.6±0.73 77.3±0.86",
            "1": "74.2±0.51 77.1±0.71",
            "2": "73.2±0.83 76.8±0.55",
        },
    ),
    "table8": ("", {"clients": "60.5±0.28", "clients, average and samples": "62.5±0.35"}),
    "table8-distilled": (
        "",
        {
            "weight average": "24.7±0.85",
            "model ensemble, SGD": "32.0±0.74",
            "model ensemble, SWA": "33.1±1.02",
            "Bayesian model ensemble, SGD": "35.1±0.76",
            "Bayesian model ensemble, SWA": "35.7±0.86",
        },
    ),
    "table9": (
        THREE,
        {
            "FedAvg": "32.5±0.78 37.5±0.65 33.3±0.55",
            "FedBE": "36.6±0.52 43.5±0.89 37.7±0.69",
        },
    ),
    # Numbers of the text: sections C.3 (the ensemble, and Table 1's average), C.4, C.5, C.6.
    "c3": ("", {"FedAvg, then an ensemble": "72.5 70.2±0.17"}),
    "c4": ("", {"SGD, 20": "74.9", "SGD, 40": "74.0", "SWA, 20": "77.5", "SWA, 40": "77.3"}),
    "c5": (
        "",
        {
            "FedAvg, group": "76.4",
            "FedAvg, batch": "74.6",
            "FedBE, group": "79.6",
            "FedBE, batch": "80.2",
        },
    ),
    "scaffold": ("ResNet20 ResNet32", {"SCAFFOLD": "59.4 55.3", "FedBE + SCAFFOLD": "76.4 72.7"}),
    "figure5": ("", {"FedAvg, 50,000 clients' images": "72.5"}),
}


def as_printed(name: str) -> dict[str, dict[str, str]]:
    """Return a file's numbers: by line, then by network, which may be none."""
    found: dict[str, dict[str, str]] = {}
    with (FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            network = row.pop("network", "")
            spread = row.pop("accuracy_spread", None)
            numbers = [row.pop(key) for key in list(row) if key.endswith("accuracy_pct")]
            printed = " ".join(numbers) + (f"±{spread}" if spread else "")
            line = found.setdefault(", ".join(row.values()), {})
            assert network not in line, (row, network)
            line[network] = printed
    return found


def test_every_published_file_is_held() -> None:
    assert {path.stem for path in FOLDER.glob("*.csv")} == PAPER.keys()


@pytest.mark.parametrize("name", PAPER)
def test_published_numbers_are_the_papers(name: str) -> None:
    networks, lines = PAPER[name]
    columns = networks.split()
    assert as_printed(name) == {
        line: dict(zip(columns, numbers.split(), strict=True)) if columns else {"": numbers}
        for line, numbers in lines.items()
    }
