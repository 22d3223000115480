"""What the command refuses, in one message, with exit status 2, before any engine starts."""

import io
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bfl.commands.flower_simulation import main
from bfl.engine.flower.app import FlowerApp
from bfl.errors import ConfigurationError
from bfl.experiments.run.simulation import agree_on_clients
from bfl.printing import print_anywhere

ROOT = Path(__file__).resolve().parent.parent.parent


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    status = main(["--app", str(ROOT), *arguments])
    captured = capsys.readouterr()
    assert status == 2
    assert "Traceback" not in captured.err
    return captured.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--run-config", "alpah=1 rounds=0"],
            ["unknown key 'alpah'", "mean 'alpha'", "rounds is"],
        ),
        (["--run-config", f"{ROOT}/configs/digit.toml"], ["did you mean", "configs/digits.toml"]),
        (["--num-supernodes", "0"], ["--num-supernodes is 0"]),
        (["--clients", "0"], ["--num-supernodes is 0"]),
        (["--num-supernodes", "4", "--run-config", "clients=5"], ["4", "5", "one number"]),
        (["--backend", "seriel"], ["did you mean 'serial'"]),
        (["--backend-config", "{"], ["not JSON"]),
        (["--backend-config", '{"client-resources": {}}'], ["did you mean 'client_resources'"]),
        (["--num-supernodes", "2000"], ["clients is 2000", "1437"]),
    ],
    ids=lambda value: str(value)[:50],
)
def test_bad_input_is_refused(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    message = refused(arguments, capsys)
    for word in words:
        assert word in message


def test_a_folder_without_an_app_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--app", str(tmp_path)]) == 2
    assert "pyproject.toml" in capsys.readouterr().err
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n", encoding="utf-8")
    assert main(["--app", str(tmp_path)]) == 2
    assert "tool.flwr.app.components" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("num_supernodes", "overrides", "expected"),
    [
        (None, {}, 10),
        (7, {}, 7),
        (None, {"clients": 6}, 6),
        (6, {"clients": 6}, 6),
        (6, {"clients": 0}, 6),
    ],
)
def test_supernodes_and_clients_are_one_number(
    num_supernodes: int | None, overrides: dict[str, Any], expected: int
) -> None:
    count, merged = agree_on_clients(num_supernodes, overrides, {"clients": 0})
    assert count == expected
    assert merged["clients"] == expected
    # An app without the key gets no clients.
    assert "clients" not in agree_on_clients(3, {"rounds": 1}, {})[1]
    of_data, _ = agree_on_clients(num_supernodes, overrides, {"clients": 0}, lambda: 4)
    assert of_data == (4 if expected == 10 else expected)


COMMAND = "import sys; from bfl.commands.entry import {0}; sys.exit({0}())"


@pytest.mark.slow
def test_commands_print_to_any_terminal() -> None:
    command = shlex.join([sys.executable, "-c", COMMAND.format("bfl"), "list", "strategy"])
    for places, encoding in (
        *(("| cat", "ascii"), (">&- 2>&-", "ascii"), ("> /dev/full", "utf-8:strict")),
        ("| head -0", "ascii"),
    ):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": encoding}
        shell = ["bash", "-o", "pipefail", "-c", f"{command} {places}"]
        done = subprocess.run(shell, capture_output=True, env=environment, check=False)
        assert (done.returncode, done.stderr) == (0, b""), places
        assert (b"conflation" in done.stdout) == (places == "| cat")


def test_what_is_started_is_said_before_what_takes_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """And a setting of a part that the run does not have is refused."""
    said: list[str] = []

    def stop(app: FlowerApp, name: str) -> None:
        captured = capsys.readouterr()
        said.extend((name, captured.out, captured.err))
        raise ConfigurationError("as far as this test goes")

    monkeypatch.setattr(FlowerApp, "load", stop)
    monkeypatch.chdir(tmp_path)
    pairs = 'strategy="conflation" closing="none"'
    assert main(["--app", str(ROOT), "--num-supernodes", "3", "--run-config", pairs]) == 2
    loaded, out, err = said
    assert loaded == "strategies.application.run:app"
    assert out.startswith("run of 3 clients in Ray actors: digits, iid partition; resnet20")
    assert err == ""
    pairs += " alpha=0.5"
    assert main(["--app", str(ROOT), "--num-supernodes", "3", "--run-config", pairs]) == 2
    assert "alpha" in capsys.readouterr().err
    assert len(said) == 3, "nothing was loaded"


def test_what_flower_mirrors_is_still_mirrored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run's lines reach whoever has started it only by the function that Flower has put there."""
    said: list[str] = []
    stream = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(stream, "write", said.append)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    print_anywhere()
    print("line")
    assert "".join(map(str, said)) == "line\n"
