"""Keys, files, pairs and chains: what resolves, what is refused, what a run keeps as given."""

import tomllib
from pathlib import Path

import pydantic
import pytest
import tomli_w
from choosing import going_with, parts_of_all_keys, word_of

from bfl.configuration import resolve, unset_values
from bfl.configuration.component_slots import SLOTS, ComponentSlot
from bfl.configuration.settings import parse_pairs
from bfl.configuration.sources import is_study, read_run_config, read_toml
from bfl.errors import ConfigurationError
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.run.resume import open_run

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


# What is given, and what the refusal names; limits of further keys: commands/test_bad_input.py.
REFUSED = """\
straegy="nwa" | 'straegy' | 'strategy'
strategy="conflaton" | 'conflaton' | 'conflation'
weighting="trainsize" | 'train-size' | max-discrepancy
dataset="cifar" | 'cifar' | 'cifar10'
dataset="npz:no/such.npz" | no/such.npz | dataset
model="resnet21" | 21 | resnet20 | resnet26
rounds="3" | rounds is '3' | a whole number
fraction-train=1.5 | fraction-train is 1.5 | at most 1
alpha=0.0 | alpha is 0.0 | greater than 0
ensemble-average="yes" | ensemble-average | true or false
rounds=0 seed=-1 alpah=1 | rounds | seed | 'alpha'
inference="deterministic" weighting="distance" strategy="nwa" | weighting 'distance' | flipout
inference="mc-dropout" strategy="fedbe-gaussian" | strategy 'client-gaussian' | mc-dropout | flipout
strategy="fedper" evaluated-by="server" | evaluated-by="clients"
strategy="fedper" server-data="held-back" | no head | server-data
strategy="fedper" predictive="ensemble" | predictive 'ensemble'
strategy="fedper" pretrain-examples=0.1 | pretrain-examples
strategy="scaffold" shared="body" evaluated-by="clients" | what 'scaffold' keeps
task="regression" evaluated-by="clients" | 'regression' | evaluated-by
resume=true | resume | name
strategy="scaffold" optimizer="adam" | correction 'scaffold' | optimizer="sgd" momentum=0.0
strategy="scaffold" pooling="conflation" | pooling 'conflation' | naive-weighted-averaging
strategy="scaffold" local-lr-decay=0.9 | 'scaffold' | local-lr-decay=1.0
strategy="scaffold" attack="echo" attackers=1 | correction 'scaffold' | attack="none"
strategy="pvi" defence="winsorization" | defence 'winsorization' | none
strategy="pvi" server-optimizer="momentum" server-momentum=0.5 | server-optimizer="none"
strategy="pvi" scale-floor=1e-5 | scale-floor 1e-05 | scale-floor=0.0
strategy="pvi" attack="noise" attackers=1 | prior 'cavity' | attack 'noise' | attack="none"
prior="cavity" | prior 'cavity' | pooling factor-changes
"""


@pytest.mark.parametrize("case", REFUSED.splitlines())
def test_what_is_refused_names_the_key_and_what_is_allowed(case: str) -> None:
    given, *words = case.split(" | ")
    with pytest.raises(ConfigurationError) as caught:
        resolve(parse_pairs(given))
    for word in words:
        assert word in str(caught.value)


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
    assert read_run_config([str(path), "rounds=3"])["rounds"] == 3
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
    assert read_run_config([str(folder / "config.toml")]) == {"rounds": 4}
    (folder / "config.toml").write_text("rounds = 4\ncrop = 2\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"0\.5 was made by an earlier bfl.*more: crop$"):
        read_run_config([str(folder / "config.toml")])
    # A file that no run has left is taken as it is.
    (tmp_path / "config.toml").write_text('name = "mine"', encoding="utf-8")
    assert read_run_config([str(tmp_path / "config.toml")]) == {"name": "mine"}


def test_relative_data_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray actors and SuperNodes may run in another folder."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "mine.npz").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    keys = resolve({"dataset": "npz:mine.npz", "data-dir": "sub"}).keys
    assert keys.dataset == f"npz:{(tmp_path / 'sub' / 'mine.npz').resolve()}"
    assert keys.data_dir == str((tmp_path / "sub").resolve())
    assert resolve({"dataset": "npz:mine.npz"}, check_data=False).keys.dataset == "npz:mine.npz"


OUTGOING = next(kind for kind in SLOTS if kind.key == "outgoing")


def test_a_chain_picks_its_links_in_their_order() -> None:
    picked = OUTGOING.pick("Clip + noise", {"clip-norm": 2.0, "rounds": 3})
    assert [link.name for link in picked] == ["clip", "noise"]
    assert picked[0].model_dump() == {"clip_norm": 2.0}
    assert OUTGOING.word(picked, "Clip + noise") == "clip+noise"
    assert OUTGOING.pick(OUTGOING.word(picked, ""), {"clip-norm": 2.0}) == picked
    assert [link.name for link in OUTGOING.pick("noise+clip", {})] == ["noise", "clip"]
    with pytest.raises(pydantic.ValidationError, match="clip-norm"):
        OUTGOING.pick("noise+clip", {"clip-norm": -1.0})


@pytest.mark.parametrize(
    ("word", "said"),
    [("clip+nois", "did you mean 'noise'"), ("clip+CLIP", "'clip' twice"), ("clip+", "outgoing")],
)
def test_a_bad_chain_is_explained(word: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        OUTGOING.pick(word, {})


@pytest.fixture
def distilled(tmp_path: Path) -> Path:
    """Return the configuration of a run by FedBE, of which two values were given."""
    given = {"strategy": "fedbe", "seed": 3, "student-augmentation": "crop-flip", "name": "first"}
    configuration = resolve({**given, "output-dir": str(tmp_path)})
    with open_run(configuration, "first", {}):
        pass
    return tmp_path / "first" / "config.toml"


def test_another_strategy_sets_aside_what_only_the_former_one_gave(distilled: Path) -> None:
    again = resolve(read_run_config([str(distilled), "rounds=4"]))
    assert again.values["refinement"] == "distillation"
    other = read_run_config([str(distilled), 'strategy="one-round-ensemble"'])
    # What somebody gave stays, also where it is what the former strategy would have given.
    assert other["student-augmentation"] == "crop-flip"
    assert other["seed"] == 3
    alone = resolve({**other, "strategy": "one-round-ensemble"})
    assert resolve(other) == alone
    own = {"strategy", "seed", "student-augmentation", "output-dir", "closing"}
    assert other.keys() <= own


def test_a_former_parts_default_of_a_shared_setting_goes_with_it(tmp_path: Path) -> None:
    former = resolve({"strategy": "fedadam", "output-dir": str(tmp_path)})
    with open_run(former, "first", {}):
        pass
    file = str(tmp_path / "first" / "config.toml")
    changed = resolve(read_run_config([file, 'strategy="ws" server-optimizer="momentum"']))
    assert changed == former.replace(strategy="ws", **{"server-optimizer": "momentum"})
    plain = resolve({"strategy": "ws", "server-optimizer": "momentum"})
    assert changed.values["server-learning-rate"] == plain.values["server-learning-rate"]


def test_what_a_run_has_beyond_what_was_given_is_taken_too(distilled: Path) -> None:
    """A run may have been given more rounds; another version may have had other defaults."""
    text = distilled.read_text(encoding="utf-8").replace("rounds = 10\n", "rounds = 12\n")
    distilled.write_text(text, encoding="utf-8")
    assert read_run_config([str(distilled), 'strategy="ws"'])["rounds"] == 12
