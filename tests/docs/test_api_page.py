"""Every snippet and every command of docs/api.md runs, in the page's order."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bfl
from bfl.commands.main import main

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "api.md"


@pytest.mark.slow
@pytest.mark.long
def test_the_page_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = re.findall(r"```(python|sh)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert {kind for kind, _ in blocks} == {"python", "sh"}
    for kind, text in blocks:
        if kind == "python":
            exec(text, names)
            continue
        for line in text.splitlines():
            command, *arguments = shlex.split(line)
            assert command == "bfl"
            assert main(arguments) == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    assert "4 runs in runs" in printed
    with np.load("two-samples.npz") as two, np.load("conflation-images-predictions.npz") as five:
        assert (two["samples"], five["samples"]) == (2, 5)
        draws = names["draws"]
        assert isinstance(draws, list)
        np.testing.assert_allclose(np.mean(draws, 0), five["mean_probability"], atol=1e-6)
    assert "validation-accuracy" in names["validated"].rounds[-1]
    assert bfl.load("runs/another-seed").configuration["seed"] == 1


@pytest.mark.slow
@pytest.mark.long
def test_the_notebook_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for cell in json.loads(PAGE.with_name("quickstart.ipynb").read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert names["result"].metrics["accuracy"] > 0.8
    of_digit, of_noise = names["predictions"].uncertainty["feature-density"]
    assert of_noise > of_digit
    assert names["other"].configuration["closing"] == "bayesian-head+feature-density"


def test_the_page_names_all_figures_of_its_own_and_no_other() -> None:
    from bfl.experiments.results.figures import figures

    table = PAGE.read_text(encoding="utf-8").split("| figure | content |")[1]
    named = re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)
    assert len(named) == 5
    assert set(named) <= set(figures.names())
