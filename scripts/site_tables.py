#!/usr/bin/env python
"""Make the tables heart.csv and beijing, with a column of sites, of two archives of UCI.

    python scripts/site_tables.py FOLDER    # has processed.*.data and PRSA_Data_*.csv somewhere

The files are those of Heart Disease (doi.org/10.24432/C52P4X) and Beijing Multi-Site Air Quality
(doi.org/10.24432/C5RK5G), unpacked. The tables are written into the folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

HEART = ["age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak"]
HEART += ["slope", "ca", "thal", "num"]
CODES = ["cp", "restecg", "slope", "thal"]
"""Columns whose numbers are names."""

EVERY = 127
"""Hours between two rows of a station: prime, so that all hours of the day occur."""

UNHEALTHY = 75.0
"""PM2.5 in µg/m³ beyond which air is polluted, by China's standard of a day (GB 3095-2012)."""

AIR = ["month", "hour", "SO2", "NO2", "CO", "O3", "TEMP", "PRES", "DEWP", "RAIN", "wd", "WSPM"]
"""Inputs: PM10 has PM2.5 in it, and by day and year a row would be told by other stations' rows."""


def heart(folder: Path) -> pd.DataFrame:
    """Return 920 patients of four hospitals: is there a disease of the heart's vessels?"""
    found = []
    for path in sorted(folder.rglob("processed.*.data")):
        rows = pd.read_csv(path, names=HEART, na_values="?")
        found.append(rows.assign(site=path.name.split(".")[1]))
    table = pd.concat(found, ignore_index=True)
    # Nobody alive has none of these: some hospitals wrote 0 where they did not measure.
    table[["chol", "trestbps"]] = table[["chol", "trestbps"]].replace(0, float("nan"))
    for name in CODES:
        table[name] = table[name].map("code {:.0f}".format, na_action="ignore")
    table["disease"] = (table.pop("num") > 0).map({True: "yes", False: "no"})
    return table


def beijing(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return rows of twelve stations, three years to train on and the year after to test on."""
    stations = [pd.read_csv(path)[::EVERY] for path in sorted(folder.rglob("PRSA_Data_*.csv"))]
    rows = pd.concat(stations, ignore_index=True).dropna(subset="PM2.5")
    table = rows[AIR].assign(
        site=rows["station"], polluted=(rows["PM2.5"] > UNHEALTHY).map({True: "yes", False: "no"})
    )
    later = 100 * rows["year"] + rows["month"] >= 201603
    return table[~later], table[later]


def main() -> None:
    """Write the tables."""
    folder = Path(sys.argv[1])
    (folder / "beijing").mkdir(exist_ok=True)
    tables = dict(zip(["beijing/train.csv", "beijing/test.csv"], beijing(folder), strict=True))
    for name, table in {"heart.csv": heart(folder), **tables}.items():
        table.to_csv(folder / name, index=False)
        print(folder / name, len(table), "rows")


if __name__ == "__main__":
    main()
