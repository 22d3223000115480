"""Columns of a round that no run evaluates are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from bfl.commands.main import main


@pytest.mark.parametrize(
    ("rounds", "every", "scale", "said"),
    [
        (10, 5, "", ""),
        (10, 4, "", "does not evaluate round 5; allowed: a multiple of evaluate-every (4)"),
        (4, 1, "", "up to rounds (4)"),
        (10, 0, "", "does not evaluate round 5"),
        (10, 5, "rounds=2", ""),
    ],
)
def test_a_number_of_a_round_that_is_not_evaluated_is_refused(
    rounds: int,
    every: int,
    scale: str,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Before the first run; with fewer rounds than the file's the column is empty."""
    path = tmp_path / "study.toml"
    column = '[[columns]]\nmetric = "accuracy-at-round-5"\n'
    base = f"[base]\nrounds = {rounds}\nevaluate-every = {every}\n"
    path.write_text(f'title = "Rounds"\n{base}{column}', encoding="utf-8")
    options = ["--dry-run", "--backend", "serial", "--output", str(tmp_path / "runs")]
    code = main(["study", str(path), *options, *(["--scale", scale] if scale else [])])
    told = " ".join(capsys.readouterr().err.split())
    assert (code == 0) == (not said)
    assert said in told
