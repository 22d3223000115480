import tomllib
from pathlib import Path

import pytest

from bfl.commands.main import main
from bfl.configuration import default_values
from bfl.pooling import pooling_rules


def test_every_rule_is_listed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    assert main(["list", "strategy"]) == 0
    printed = capsys.readouterr().out
    for rule in pooling_rules.classes():
        assert rule.name in printed
        for alias in rule.aliases:
            assert alias in printed


def test_every_kind_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    printed = capsys.readouterr().out
    for kind in ("dataset", "partition", "model", "inference", "weighting", "prior"):
        assert kind in printed


def test_an_unknown_kind_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "strategies"]) == 2
    assert "did you mean 'strategy'" in capsys.readouterr().err


def test_keys_are_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    assert main(["keys", "--toml"]) == 0
    assert tomllib.loads(capsys.readouterr().out) == default_values()
    assert main(["keys"]) == 0
    printed = capsys.readouterr().out
    assert all(key in printed for key in default_values())


@pytest.mark.parametrize("command", ["plot", "show"])
def test_a_folder_without_a_run_is_refused(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(tmp_path)]) == 2
    assert "is not the folder of a run" in capsys.readouterr().err
