import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from choosing import going_with, parts_of_all_keys, word_of

from bfl.configuration import default_values, resolve, unset_values
from bfl.configuration.component_slots import ComponentSlot
from bfl.configuration.pairs import parse_pairs
from bfl.configuration.settings import in_sections
from bfl.configuration.sources import is_study, read_run_config, read_toml
from bfl.errors import ConfigurationError
from bfl.experiments.results.run_folder import RunFolder

ROOT = Path(__file__).resolve().parent.parent.parent


def test_flower_knows_all_keys_as_not_given() -> None:
    """`flwr run` refuses keys that do not stand in pyproject.toml; `bfl keys --toml` prints them.

    flower-simulation and studies take all keys, declared there or not.
    """
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    declared, unset = table["tool"]["flwr"]["app"]["config"], unset_values()
    assert declared.items() <= unset.items()
    missing = [key for key in unset if key not in declared]
    lines = tomli_w.dumps({key: unset[key] for key in missing})
    assert not missing, f"pyproject.toml lacks, in [tool.flwr.app.config]:\n{lines}"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(kind, component.name, id=f"{kind.key}-{component.name}")
        for kind, component in parts_of_all_keys()
    ],
)
def test_every_registered_word_resolves(kind: ComponentSlot, name: str) -> None:
    word = word_of(kind, name)
    given = {**going_with(kind.key, word), kind.key: word}
    assert resolve(given, check_data=False).values[kind.key] == word


def test_the_values_of_a_configuration_resolve_to_it_again() -> None:
    given = {
        "strategy": "ppa",
        "population-size": 77,
        "partition": "dirichlet",
        "alpha": 5.0,
        "model": "resnet32",
        "prior-scale": 2.5,
        "calibration-bins": 10,
        "seed": 9,
    }
    configuration = resolve(given)
    assert resolve(configuration.values) == configuration
    assert {k: v for k, v in configuration.values.items() if k in given} == {
        **given,
        "strategy": "population-pooling",
    }
    assert configuration.architecture.depth == 32  # type: ignore[attr-defined]


# Limits of further keys are tested through the command: tests/commands/test_bad_input.py.
REFUSED: list[tuple[dict[str, Any], list[str]]] = [
    ({"straegy": "nwa"}, ["unknown key 'straegy'", "did you mean 'strategy'"]),
    ({"judged-by": "clients"}, ["unknown key 'judged-by'", "did you mean 'evaluated-by'"]),
    ({"strategy": "conflaton"}, ["unknown strategy 'conflaton'", "did you mean 'conflation'"]),
    ({"weighting": "trainsize"}, ["did you mean 'train-size'", "max-discrepancy"]),
    ({"dataset": "cifar"}, ["unknown dataset 'cifar'", "did you mean 'cifar10'"]),
    ({"dataset": "npz:no/such.npz"}, ["no/such.npz", "dataset"]),
    ({"model": "resnet21"}, ["21", "resnet20", "resnet26"]),
    ({"rounds": "3"}, ["rounds is '3'", "a whole number"]),
    ({"rounds": 2.5}, ["rounds is 2.5", "a whole number"]),
    ({"rounds": True}, ["rounds is True", "a whole number"]),
    ({"fraction-train": 1.5}, ["fraction-train is 1.5", "at most 1"]),
    ({"alpha": 0.0}, ["alpha is 0.0", "greater than 0"]),
    ({"dropout-rate": 1.0}, ["dropout-rate is 1.0", "less than 1"]),
    ({"dropout-output": "yes"}, ["dropout-output", "true or false"]),
    (
        {"inference": "deterministic", "weighting": "distance", "strategy": "nwa"},
        ["weighting 'distance'", "deterministic", "flipout"],
    ),
    (
        {"inference": "mc-dropout", "strategy": "conflation"},
        ["strategy 'conflation'", "mc-dropout", "flipout"],
    ),
    (
        {"inference": "deterministic", "strategy": "client-gaussian"},
        ["strategy 'client-gaussian'", "deterministic", "flipout"],
    ),
    (
        {"inference": "mc-dropout", "strategy": "fedbe-gaussian"},
        ["strategy 'client-gaussian'", "mc-dropout", "flipout"],
    ),
    ({"model": "convolutional", "jit": "on"}, ["jit 'on'", "'convolutional'", "resnet"]),
    ({"strategy": "fedper", "evaluated-by": "server"}, ['evaluated-by="clients"']),
    ({"strategy": "fedper", "server-data": "held-back"}, ["no head", "server-data"]),
    ({"strategy": "fedper", "ood-dataset": "rotated"}, ["no head", "ood-dataset"]),
    ({"strategy": "fedper", "predictive": "ensemble"}, ["predictive 'ensemble'"]),
    ({"strategy": "fedper", "pretrain-examples": 0.1}, ["pretrain-examples"]),
    (
        {"strategy": "scaffold", "shared": "body", "evaluated-by": "clients"},
        ["what 'scaffold' keeps"],
    ),
    ({"server-evaluates": False, "corruptions": "noise"}, ["server-evaluates", "corruptions"]),
    ({"rounds": 0, "seed": -1, "alpah": 1}, ["rounds", "seed", "did you mean 'alpha'"]),
]


@pytest.mark.parametrize(("values", "words"), REFUSED, ids=lambda v: str(v)[:60])
def test_what_is_refused_is_explained(values: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve(values)
    for word in words:
        assert word in str(caught.value)


def test_a_misspelled_plugin_is_not_followed_by_its_consequences() -> None:
    with pytest.raises(ConfigurationError, match=r"did you mean 'plugins'\?$"):
        resolve({"plugin": "own_rule.py", "strategy": "own-rule"})


# Studies are read in tests/experiments/studies.
FILES = [
    path for path in sorted((ROOT / "configs").rglob("*.toml")) if not is_study(read_toml(path))
]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_every_configuration_file_resolves(path: Path) -> None:
    resolve(read_run_config([str(path)]), check_data=False)


def test_pairs_are_read_as_toml() -> None:
    text = (
        """strategy="conflation" rounds=3 alpha=0.5 flag=true name='a b' dataset="npz:/x y.npz" """
    )
    assert parse_pairs(text) == {
        "strategy": "conflation",
        "rounds": 3,
        "alpha": 0.5,
        "flag": True,
        "name": "a b",
        "dataset": "npz:/x y.npz",
    }


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("strategy=conflation", 'strategy="conflation"'),
        ("rounds", "key=value"),
        ("rounds=3 rounds=4", "given twice"),
        ('name="open', "key=value"),
    ],
)
def test_bad_pairs_are_explained(text: str, word: str) -> None:
    with pytest.raises(ConfigurationError, match=word):
        parse_pairs(text)


def test_files_and_pairs_mix_and_later_ones_win(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('rounds = 4\n[nested]\nkey = "v"\n', encoding="utf-8")
    assert read_run_config([str(path), "seed=3"]) == {"rounds": 4, "nested.key": "v", "seed": 3}
    told: list[str] = []
    assert read_run_config([str(path), "rounds=3"], told.append)["rounds"] == 3
    assert told == [f"rounds is 3 by key=value pairs, no longer 4 by {path}"]
    assert read_run_config(["rounds=3", str(path), "seed=3"])["rounds"] == 4
    with pytest.raises(ConfigurationError, match="no such file"):
        read_run_config([str(tmp_path / "none.toml")])
    path.write_text("rounds = = 4", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="not TOML"):
        read_run_config([str(path)])
    path.write_text("[axes]\nseed = [0]\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=f"bfl study {path}"):
        read_run_config([str(path)])


def test_a_runs_own_configuration_is_taken_without_its_name(tmp_path: Path) -> None:
    """Its folder may have an equals sign in its name, as a study's runs could."""
    folder = tmp_path / "alpha=0.5"
    values = {"rounds": 4, "name": "first", "resume": True}
    RunFolder.create(tmp_path, folder.name, values, {})
    told: list[str] = []
    assert read_run_config([str(folder / "config.toml")], told.append) == {"rounds": 4}
    assert told == [f"{key} of the run in {folder} is not taken" for key in ("name", "resume")]
    # A file that no run has left is taken as it is.
    (tmp_path / "config.toml").write_text('name = "mine"', encoding="utf-8")
    assert read_run_config([str(tmp_path / "config.toml")]) == {"name": "mine"}


def test_a_file_may_have_its_keys_in_sections(tmp_path: Path) -> None:
    """Each in its own, or at the top: wherever one stands, it is the same key."""
    path, values = tmp_path / "config.toml", default_values()
    tables = in_sections(values)
    assert {"data", "training", "evaluation"} < tables.keys()
    path.write_text(tomli_w.dumps(tables), encoding="utf-8")
    assert read_run_config([str(path)]) == values
    RunFolder.create(tmp_path, "run", tables, {})
    assert RunFolder(tmp_path / "run").config() == values
    for text, said in (
        ("[training]\nalpha = 0.5", r"'alpha' stands in \[training\]; allowed: in \[data\]"),
        ("[data]\nrounds = 3", r"'rounds' stands in \[data\]; allowed: at the top"),
        ("alpha = 0.5\n[data]\nalpha = 0.5", "'alpha' is given twice"),
        ("[dota]\nalpha = 0.5", "dota.alpha"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigurationError, match=said):
            resolve(read_run_config([str(path)]))


def test_relative_data_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray actors and SuperNodes may run in another folder."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "mine.npz").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    keys = resolve({"dataset": "npz:mine.npz", "data-dir": "sub"}).keys
    assert keys.dataset == f"npz:{(tmp_path / 'sub' / 'mine.npz').resolve()}"
    assert keys.data_dir == str((tmp_path / "sub").resolve())
    assert resolve({"dataset": "npz:mine.npz"}, check_data=False).keys.dataset == "npz:mine.npz"
