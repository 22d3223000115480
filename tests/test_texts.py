"""Texts of others: too many levels are refused wherever JSON or TOML is read."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bfl.commands.flower_simulation import main as simulate
from bfl.commands.main import main
from bfl.configuration import resolve
from bfl.experiments.results.run_folder import RunFolder
from bfl.texts import MOST_LEVELS, counted, from_json, from_toml

JSON = {
    "lists": "[" * 100_000 + "]" * 100_000,
    "objects": '{"a":' * 900 + "0" + "}" * 900,
    "within": '{"round": 1, "seconds": ' + "[" * 900 + "]" * 900 + "}",
}
TOML = {
    "lists": "rounds = 1\na = " + "[" * 100_000 + "]" * 100_000,
    "tables": "a = " + "{a=" * 900 + "0" + "}" * 900,
    "dotted": ".".join("a" * 20_000) + " = 1",
    "header": "[" + ' . "b" . '.join("a" * 20_000) + "]",
}


def levels(number: int) -> str:
    return "[" * number + "]" * number


def test_as_many_levels_as_are_said() -> None:
    assert from_json(levels(MOST_LEVELS)) == json.loads(levels(MOST_LEVELS))
    for read, text in ((from_json, "{}"), (from_toml, "a = {}")):
        with pytest.raises(ValueError, match="levels"):
            read(text.format(levels(MOST_LEVELS + 1)))


@pytest.mark.parametrize("part", ["a", "'b c'", '"b.\\"c"', "a-1"])
def test_keys_of_many_parts_are_refused_before_they_are_read(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading one of 20,000 takes a quarter of a minute."""
    parts = [part] * MOST_LEVELS
    assert from_toml(".".join(parts) + " = 1")
    monkeypatch.setattr("bfl.texts.tomllib.loads", None)
    for key in (".".join([*parts, "a"]), "[" + " . ".join([*parts, "a"]) + "]"):
        with pytest.raises(ValueError, match="levels"):
            from_toml(f"{key} = 1")


COMMANDS: dict[str, Callable[[], int]] = {
    "config.toml": lambda: main(["show", "run"]),
    "metrics.json": lambda: main(["show", "run"]),
    "run.json": lambda: main(["predict", "run", "--data", "images.npy"]),
    "rounds.jsonl": lambda: main(["plot", "run"]),
    "study.toml": lambda: main(["table", "study"]),
    "small.toml": lambda: main(["study", "small.toml"]),
    "own.toml": lambda: simulate(["--backend", "serial", "--run-config", "own.toml"]),
}


@pytest.mark.parametrize("file", COMMANDS)
def test_commands_refuse_them(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = RunFolder.create(tmp_path, "run", resolve({}).values, {})
    run.write_metrics({"accuracy": 0.5})
    np.save(tmp_path / "images.npy", np.zeros((2, 8, 8, 1), np.uint8))
    place = {"study": tmp_path / "study", "own": tmp_path, "small": tmp_path}.get(
        file.split(".")[0], run.path
    )
    place.mkdir(exist_ok=True)
    for text in (TOML if file.endswith(".toml") else JSON).values():
        # As not the last line, which a run that is killed may leave torn.
        (place / file).write_text(f"{text}\n" * 2 if file.endswith("l") else text, encoding="utf-8")
        assert COMMANDS[file]() == 2
        assert file in "".join(capsys.readouterr()).replace("\n", "")


@pytest.mark.parametrize(
    "options",
    [
        ("--run-config", f"rounds={levels(900)}"),
        ("--run-config", f"rounds={levels(50_000)}"),
        ("--backend-config", '{"init_args": ' + levels(900) + "}"),
        ("--backend-config", levels(100_000)),
    ],
)
def test_options_refuse_them(options: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(["--backend", "serial", *options]) == 2
    assert len(capsys.readouterr().err) < 1000


def test_one_is_no_plural() -> None:
    found = [counted(number, "round") for number in (0, 1, 1.5, 2_000_000)]
    assert found == ["0 rounds", "1 round", "1.5 rounds", "2000000 rounds"]
