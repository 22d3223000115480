"""Parts of one's own from outside the checkout, as a user has them: the documented examples."""

import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from bfl import plugins
from bfl.aggregation.pooling import pooling_rules
from bfl.aggregation.weightings import weightings
from bfl.configuration import refuse_unread, resolve
from bfl.configuration.settings import parse_pairs
from bfl.engine.flower import new_run
from bfl.engine.flower.app import FlowerApp, run_serially
from bfl.engine.serial import SerialGrid
from bfl.errors import ConfigurationError
from bfl.evaluation.metrics import Metric, metrics
from bfl.evaluation.uncertainty import Uncertainty
from bfl.experiments.results.run_folder import ENVIRONMENT, RunFolder
from bfl.registry import Component, Registry
from clients.client_app import app as client_app
from strategies.federation import discover

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = re.compile(r"```python\n# bfl/\S+?(\w+\.py)\n(.*?)```", re.DOTALL)
METHOD = '''"""A method of one's own."""

from typing import ClassVar

from bfl.presets import Preset, presets


@presets.register("my-method", aliases=("mine",))
class MyMethod(Preset):
    """Documented parts, as many as go together."""

    values: ClassVar = {
        "pooling": "harmonic-mean-of-variances",
        "weighting": "power-of-size",
        "size-power": 1 / 3,
        "model": "perceptron",
        "dataset": "stripes",
        "partition": "by-size",
        "prior": "around-global",
        "sampling": "two-shifts",
        "workload": "two-speeds",
        "schedule": "halving",
        "halving-rounds": 1,
        "server-optimizer": "nesterov",
        "objective": "elbo+confidence-penalty",
        "start": "widened",
        "correction": "client-momentum",
        "optimizer": "sgd",
        "momentum": 0.0,
        "augmentation": "brightness",
        "attack": "overstatement",
        "attackers": 1,
        "defence": "median",
        "outgoing": "largest-changes",
        "broadcast": "values",
        "personalization": "side-by-side",
        "refinement": "halfway",
        "sampler": "one-of-the-clients",
        "predictive": "first-client"
    }
'''

RULE = '''"""A rule."""

from bfl.aggregation.pooling.base import pooling_rules
from bfl.aggregation.pooling.linear_pool import LinearPoolRule


@pooling_rules.register("{name}")
class Mine(LinearPoolRule):
    """A rule."""
'''
SMALL = (
    "rounds=2 clients=4 local-epochs=1 train-examples=80.0 test-examples=20.0 mc-samples=2 "
    'evaluate-mc-samples=1 closing="none"'
)


def write_examples(folder: Path) -> str:
    """Write the documented parts and a method of them; return the key ``plugins``."""
    files = {"my_method.py": METHOD}
    for page in ("README.md", "docs/extending.md"):
        files.update(EXAMPLE.findall((ROOT / page).read_text(encoding="utf-8")))
    for name, code in files.items():
        (folder / name).write_text(code, encoding="utf-8")
    return ", ".join(sorted(files))


def is_plugin(component: type[Component]) -> bool:
    return component.__module__.startswith("bfl_plugin_")


def test_parts_of_all_kinds_resolve_from_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"plugins": write_examples(tmp_path), "strategy": "mine", "size-power": 0.25}
    configuration = resolve(given)
    assert configuration.pooling.name == "harmonic-mean-of-variances"
    assert configuration.values["size-power"] == 0.25
    assert configuration.words["model"] == "perceptron"
    assert "top-two-accuracy" in metrics.names()
    own = [c for registry in Registry.known for c in registry.classes() if is_plugin(c)]
    assert len(own) == len(list(tmp_path.glob("*.py"))), "every file has one part"
    parts = {type(part) for part in configuration.components}
    left = {c.name for c in set(own) - parts if not issubclass(c, (Metric, Uncertainty))}
    # Those do not go with that method, or are no part of a run.
    others = {"stripes", "careful-averaging", "dense-dropout", "rmsprop", "automatic-clipping"}
    assert left == others | {"without-normalization", "my-method", "label-shares"}
    for base in (Metric, Uncertainty):
        assert any(issubclass(c, base) for c in own)
    refuse_unread(configuration, given)
    # Absolute, so that they mean the same to a process in another folder.
    assert all(Path(place).is_absolute() for place in configuration.keys.plugins.split(", "))
    monkeypatch.chdir(ROOT)
    assert resolve(configuration.values, check_data=False) == configuration


def test_the_app_takes_the_keys_of_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_examples(tmp_path)
    named = {"plugins": str(tmp_path / "power_of_size.py"), "size-power": 0.75}
    app = FlowerApp.read(ROOT)
    assert app.run_config({"plugins": named["plugins"]})["size-power"] == ""
    method = {"plugins": write_examples(tmp_path), "strategy": "mine"}
    monkeypatch.chdir(tmp_path)
    assert resolve(app.run_config(method)).values["size-power"] == 1 / 3
    typed = {**app.run_config(named), "weighting": "power-of-size"}
    assert resolve(typed).values["size-power"] == 0.75
    # flwr run takes declared keys alone.
    text = {"plugins": named["plugins"], "plugin-settings": "size-power=0.5 rounds=7"}
    text = app.for_flwr_run({**text, "size-power": 0.75, "alpha": 1.0})
    assert text.keys() == {"plugins", "plugin-settings", "alpha"} <= app.declared.keys()
    with pytest.raises(ConfigurationError, match="did you mean 'size-power'"):
        resolve(app.run_config({**named, "sise-power": 2.0}))
    configuration = resolve({**app.run_config(text), "weighting": "power-of-size", "rounds": 8})
    assert (configuration.values["size-power"], configuration.keys.rounds) == (0.75, 8)
    with pytest.raises(ConfigurationError, match=r"size-power is 1\.5.*1"):
        resolve({**typed, "size-power": 1.5})
    assert resolve(configuration.values) == configuration


def test_what_is_missing_or_other_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    (tmp_path / "mein.py").touch()
    with pytest.raises(ConfigurationError, match=r"no file .*mine\.py; did you mean .*mein\.py"):
        resolve({"plugins": str(path)})
    with pytest.raises(ConfigurationError, match=r"mein\.py .*it registers no part"):
        resolve({"plugins": str(tmp_path / "mein.py")})
    with pytest.raises(ConfigurationError, match=r"no_such_parts.*allowed"):
        resolve({"plugins": "no_such_parts"})
    path.write_text(RULE.format(name="mine"), encoding="utf-8")
    given = {"plugins": str(path), "strategy": "mine"}
    before = type(resolve(given).pooling)
    assert type(resolve(given).pooling) is before, "no network is traced anew"
    # Changed, it is another part, and not a second one.
    path.write_text(RULE.format(name="mine") + "# changed\n", encoding="utf-8")
    assert type(resolve(given).pooling) is not before


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("1 / 0\n", "mine.py cannot be loaded: ZeroDivisionError"),
        (RULE.format(name="conflation"), "'conflation' is registered twice"),
        ("import no_such_thing\n", "ModuleNotFoundError"),
    ],
    ids=["raises", "taken name", "missing import"],
)
def test_what_cannot_be_loaded_is_refused_and_leaves_nothing(
    code: str, said: str, tmp_path: Path
) -> None:
    before = pooling_rules.spellings()
    path = tmp_path / "mine.py"
    path.write_text(RULE.format(name="first") + code.replace("Mine", "Other"), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        resolve({"plugins": str(path)})
    assert pooling_rules.spellings() == before


def test_a_part_that_declares_what_is_no_property_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    method = "\n    def requires(self):\n        return frozenset({'plain-stepz'})\n"
    Path("mine.py").write_text(RULE.format(name="needy") + method, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"pooling 'needy'.* did you mean 'plain-steps'"):
        resolve({"plugins": "mine.py", "pooling": "needy"})
    resolve({"plugins": "mine.py", "pooling": "linear-pool"})
    Path("mine.py").write_text(
        RULE.format(name="needy") + "    rounds: int = 2\n", encoding="utf-8"
    )
    with pytest.raises(ConfigurationError, match=r"Mine \('needy'\) has a setting 'rounds', a key"):
        resolve({"plugins": "mine.py"})


def test_files_are_where_the_node_says(tmp_path: Path) -> None:
    server, node = tmp_path / "server", tmp_path / "node"
    server.mkdir()
    node.mkdir()
    for folder in (server, node):
        (folder / "mine.py").write_text(RULE.format(name="mine"), encoding="utf-8")
    values = resolve({"plugins": str(server / "mine.py"), "strategy": "mine"}).values
    (server / "mine.py").unlink()
    with pytest.raises(ConfigurationError, match="mine"):
        resolve(values)
    there = resolve(values, plugins_of_node=str(node))
    assert there.pooling.name == "mine"
    assert there.keys.plugins.startswith(str(node))


def test_nodes_that_lack_a_plugin_end_the_run_before_its_first_round(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(RULE.format(name="mine"), encoding="utf-8")
    named = resolve({"plugins": str(path)}).keys.plugins
    grid = SerialGrid(client_app, 2, new_run({}), {})
    assert discover(grid, 2, timeout=20.0, plugins=named).size == 2
    path.unlink()
    with pytest.raises(ConfigurationError, match=r"\(partition 0\): .* no file"):
        discover(grid, 2, timeout=20.0, plugins=named)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Install a distribution with a package of parts, as far as Python's machinery can see."""
    name = f"acme_parts_{tmp_path.name.replace('-', '_')}"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text(f"from {name} import rules\n", encoding="utf-8")
    (folder / "rules.py").write_text(RULE.format(name="acme"), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    for registry in (pooling_rules, weightings):
        registry.withdraw(lambda c: c.__module__.startswith(name))
    plugins.installed_plugins.cache_clear()


def test_an_installed_distribution_need_not_be_named(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = SimpleNamespace(module=package, dist=SimpleNamespace(name="acme"))
    found = importlib.metadata.entry_points
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda group: [entry] if group == plugins.GROUP else
        found(group=group)
    )  # fmt: skip
    plugins.installed_plugins.cache_clear()
    plugins.installed_plugins()
    configuration = resolve({"strategy": "acme"})
    # A run that uses its parts names it, for nodes that may lack it; another does not.
    assert configuration.keys.plugins == package
    assert resolve({}).keys.plugins == ""
    assert resolve(configuration.values) == configuration
    assert "acme" in pooling_rules


@pytest.mark.slow
@pytest.mark.long
def test_rays_actors_have_the_parts_of_a_run_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a folder that holds nothing but the files of plugins."""
    monkeypatch.chdir(tmp_path)
    values = f'{SMALL} plugins="{write_examples(tmp_path)}" strategy="mine" output-dir="runs"'
    here = {**parse_pairs(values), "name": "here"}
    run_serially(FlowerApp.read(ROOT), here, 4, {})
    command = [sys.executable, "-c", "from bfl.commands.entry import *; exit(flower_simulation())"]
    done = subprocess.run(
        [*command, "--run-config", f'{values} name="ray"'],
        env={**os.environ, "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    ray, serial = (RunFolder(tmp_path / "runs" / name) for name in ("ray", "here"))
    assert str(tmp_path / "power_of_size.py") in ray.read_json(ENVIRONMENT)["plugins"]
    assert "top-two-accuracy" in ray.metrics()
    clients = [[each["client"] for each in entry["per-client"]] for entry in ray.rounds()]
    assert clients == [[0, 2], [1, 3]]
    assert ray.rounds()[-1]["posterior-sha256"] == serial.rounds()[-1]["posterior-sha256"]
