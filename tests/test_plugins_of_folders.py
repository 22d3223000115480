"""Plugins that a folder of results names run only if the user names them as well."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tomli_w

import bfl
from bfl.commands.flower_simulation import main as simulate
from bfl.commands.main import main
from bfl.configuration import resolve
from bfl.errors import ConfigurationError, DataError
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.run.network import FORMAT, SCALING, VERSIONS, network_description
from bfl.posteriors import Manifest, Parameter, Posterior

STUDY = """
title = "theirs"
[base]
rounds = 1
{base}
[axes]
seed = [0]
[[rows]]
label = {{ rule = "ws" }}
strategy = "ws"
{row}
"""

PLUGIN = """
from bfl.aggregation.pooling.base import pooling_rules
from bfl.aggregation.pooling.linear_pool import LinearPoolRule

open({!r}, "w").close()

@pooling_rules.register("theirs")
class Theirs(LinearPoolRule):
    '''A rule.'''
"""


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with somebody's run and studies, which name a plugin that leaves a file."""
    folder = tmp_path / "theirs"
    run = RunFolder.create(tmp_path, "theirs", resolve({"model": "mlp"}).values, {})
    plugin = folder / "parts.py"
    plugin.write_text(PLUGIN.format(str(tmp_path / "ran")), encoding="utf-8")
    relative = "theirs/parts.py"
    keys = {**resolve({"model": "mlp"}).values, "plugins": relative}
    (folder / "config.toml").write_text(tomli_w.dumps(keys), encoding="utf-8")
    run.write_json("run.json:given", {"plugins": relative})
    run.write_json(
        "run.json:network",
        {
            "format": FORMAT,
            "scaling": SCALING,
            "image-shape": [8, 8, 1],
            "class-names": ["a", "b"],
            "keys": {key: value for key, value in keys.items() if key != "shared"},
            "threads": None,
            "versions": dict.fromkeys(VERSIONS),
        },
    )
    point = np.zeros(1, np.float32)
    run.write_posterior(
        Posterior(point[:0], point[:0], point),
        Manifest((Parameter("w", (1,), gaussian=False, initialization="zeros"),)),
    )
    (tmp_path / "link.toml").symlink_to(folder / "config.toml")
    np.savez(
        tmp_path / "images.npz", x_test=np.zeros((9, 8, 8, 1), np.uint8), labels=np.arange(9) % 2
    )
    monkeypatch.chdir(tmp_path)
    return folder


WAYS: dict[str, Callable[[], int]] = {
    "network": lambda: main(["predict", "theirs", "--data", "images.npz"]),
    "resume": lambda: simulate(["--backend", "serial", "--resume", "theirs"]),
    "repeated": lambda: simulate(["--backend", "serial", "--run-config", "theirs/config.toml"]),
    "shown": lambda: main(["show", "--run-config", "theirs/config.toml"]),
    "link": lambda: main(["show", "--run-config", "link.toml"]),
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_runs_unasked(way: str, theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert WAYS[way]() == 2
    assert not (theirs.parent / "ran").exists()
    printed = "".join(capsys.readouterr()).replace("\n", "")
    assert "theirs/parts.py" in printed
    assert "plugins" in printed


def test_nor_without_its_description(theirs: Path) -> None:
    (theirs / "run.json").unlink()
    with pytest.raises(DataError, match=r"run\.json"):
        network_description(RunFolder(theirs))
    assert not (theirs.parent / "ran").exists()


@pytest.mark.parametrize("word", ["theirs/parts.py", "json"])
def test_only_what_is_named_runs(word: str, theirs: Path, tmp_path: Path) -> None:
    """By its content, wherever the user has it; modules likewise."""
    described = RunFolder(theirs).read_json("run.json:network")
    described["keys"]["plugins"] = word
    RunFolder(theirs).write_json("run.json:network", described)
    with pytest.raises(ConfigurationError, match="allowed"):
        _ = network_description(RunFolder(theirs)).architecture
    mine = tmp_path / "mine.py"
    mine.write_bytes((theirs / "parts.py").read_bytes())
    bfl.load(theirs, plugins=str(mine) if word.endswith(".py") else word)
    _ = network_description(RunFolder(theirs)).architecture
    assert main(["show", "--run-config", "theirs/config.toml", "--plugins", "mine.py"]) == 0
    assert (
        main(["show", "--run-config", "theirs/config.toml", "--run-config", 'plugins="mine.py"'])
        == 0
    )
    assert (tmp_path / "ran").exists()
