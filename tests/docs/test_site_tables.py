"""Tables of UCI's files: what is missing, what is told, and which rows test."""

import importlib
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADER = "No,year,month,day,hour,PM2.5,PM10,SO2,NO2,CO,O3,TEMP,PRES,DEWP,RAIN,wd,WSPM,station"


def test_the_tables_of_sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    script = importlib.import_module("site_tables")
    (tmp_path / "processed.va.data").write_text("63,1,4,0,0,?,2,?,?,?,?,?,?,3\n")
    (tmp_path / "processed.hungarian.data").write_text("28,1,2,9,8,0,0,0,0,0,0,0,0,0\n")
    heart = script.heart(tmp_path).set_index("site")
    assert heart["disease"].to_dict() == {"hungarian": "no", "va": "yes"}
    assert heart.loc["va", ["trestbps", "chol", "fbs", "thal"]].isna().all()
    assert heart.loc["hungarian", ["trestbps", "chol"]].tolist() == [9, 8]
    assert heart.loc["va", "cp"] == "code 4"

    hours = pd.date_range("2016-02-24", periods=300, freq="h")
    lines = [
        f"1,{t.year},{t.month},{t.day},{t.hour},{70 + hour // 25}{',1' * 9},N,1,X"
        for hour, t in enumerate(hours)
    ]
    (tmp_path / "PRSA_Data_X_1.csv").write_text("\n".join([HEADER, *lines]))
    train, test = script.beijing(tmp_path)
    assert train["hour"].tolist() == [0, 7]  # hours 0 and 127 of the file
    assert test["hour"].tolist() == [14]  # hour 254, in March
    assert [*train["polluted"], *test["polluted"]] == ["no", "no", "yes"]
    assert {"PM2.5", "PM10", "day", "year"}.isdisjoint(train)
