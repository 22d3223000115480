"""What strategies stand for, and which parts do not go together."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from choosing import PRIVATE, going_with

from bfl.aggregation.pooling import pooling_rules
from bfl.aggregation.server_optimizers import server_optimizers
from bfl.configuration import default_values, resolve
from bfl.configuration.compatibility import PROPERTIES
from bfl.configuration.component_slots import REGISTRIES, SLOTS
from bfl.configuration.settings import settings_of, unset_values
from bfl.configuration.sources import read_run_config
from bfl.engine.flower.app import FlowerApp
from bfl.errors import ConfigurationError
from bfl.experiments.results.run_folder import RunFolder
from bfl.federation.attacks import attacks
from bfl.federation.parts import Trained
from bfl.learning.inferences import inferences
from bfl.posteriors import Posterior
from bfl.presets import presets

ROOT = Path(__file__).resolve().parent.parent.parent
Values = dict[str, Any]


def as_flwr_run(given: Values) -> Values:
    """Return what the ServerApp gets of ``flwr run``: pyproject's values, then those given."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return {**table["tool"]["flwr"]["app"]["config"], **given}


def as_flower_simulation(given: Values) -> Values:
    """Return what the ServerApp gets of ``flower-simulation``."""
    return dict(FlowerApp.read(ROOT).run_config(given))


WAYS = [as_flwr_run, as_flower_simulation]
PRESETS = presets.names()
POSTERIOR = Posterior(np.arange(1.0, 4.0), np.full(3, 0.5), np.arange(3.0))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_comes_after_defaults_and_before_the_user(way: Any, name: str) -> None:
    values, defaults = presets.get(name).values, default_values()
    resolved = resolve(way({"strategy": name})).values
    assert {key: resolved[key] for key in values} == dict(values)
    for key in values:
        # What the user says wins, also where it is the default that the preset sets aside: unless
        # the preset's other parts need its value, and refuse this one.
        given = way({"strategy": name, key: defaults[key]})
        try:
            said = resolve(given).values.get(key, defaults[key])
        except ConfigurationError as refused:
            said = defaults[key] if key in str(refused) else str(refused)
        assert said == defaults[key]


@pytest.mark.parametrize("way", WAYS)
def test_a_users_default_wins_over_a_preset(way: Any) -> None:
    given = {"strategy": "fedavgm", "server-momentum": 0.0}
    assert resolve(way({"strategy": "fedavgm"})).values["server-momentum"] == 0.9
    assert resolve(way(given)).values["server-momentum"] == 0.0
    assert not resolve(way(given)).server_optimizer.active
    given = {"strategy": "scaffold", "learning-rate": default_values()["learning-rate"]}
    assert resolve(way({"strategy": "scaffold"})).keys.learning_rate == 0.01
    assert resolve(way(given)).keys.learning_rate == 0.001


def test_parts_have_their_own_defaults_of_a_shared_key() -> None:
    for optimizer in server_optimizers.classes():
        default = optimizer.model_fields["server_learning_rate"].default
        needed = going_with("server-optimizer", optimizer.name)
        given = as_flwr_run({**needed, "server-optimizer": optimizer.name})
        assert resolve(given).values["server-learning-rate"] == default


@pytest.mark.parametrize("way", WAYS)
def test_a_users_empty_string_wins_over_a_preset(way: Any) -> None:
    assert resolve(way({"strategy": "fedbe"})).keys.server_data == "held-back"
    given = {"strategy": "fedbe", "refinement": "none", "server-data": ""}
    configuration = resolve(way(given))
    assert configuration.keys.server_data == ""
    # A client resolves what a server has resolved.
    assert resolve(configuration.values) == configuration
    with pytest.raises(ConfigurationError, match="server-data ''"):
        resolve(way({"strategy": "fedbe", "server-data": ""}))


def test_nothing_given_is_the_defaults() -> None:
    assert resolve(unset_values()) == resolve({}) == resolve({"strategy": "fedavg"})
    assert resolve({"inference": "flipout"}) == resolve({"strategy": "ws"})
    assert resolve({"pooling": "conflation"}).inference.name == "flipout"
    assert resolve({"rounds": ""}).keys.rounds == default_values()["rounds"]


@pytest.mark.parametrize("name", PRESETS)
def test_values_are_complete_and_resolve_to_themselves(name: str) -> None:
    given = {"strategy": name}
    configuration = resolve(given)
    assert resolve(configuration.values) == configuration
    assert resolve(json.loads(json.dumps(configuration.values))).values == configuration.values
    for component in configuration.components:
        assert settings_of(type(component)).keys() <= configuration.values.keys()
    # Naming the values in place of the strategy is the same method.
    without = {k: v for k, v in configuration.values.items() if k != "strategy"}
    assert resolve(without).components == configuration.components


@pytest.mark.parametrize("rule", pooling_rules.classes(), ids=lambda rule: str(rule.name))
def test_a_rules_name_and_aliases_are_strategies(rule: Any) -> None:
    needed = {"prior": "cavity", "scale-floor": 0.0} if rule.name == "factor-changes" else {}
    for word in (rule.name, *rule.aliases):
        configuration = resolve({"strategy": word, **needed})
        assert type(configuration.pooling) is rule
        assert configuration.keys.strategy == rule.name
    # An explicit rule wins, over a rule's name and over a preset's.
    for strategy, said in (("weighted-sum-of-normals", rule.name), ("fedavg", None)):
        gaussian = {"inference": "flipout"}  # federated averaging has points
        other = resolve({"strategy": strategy, "pooling": rule.name, **gaussian, **needed})
        assert type(other.pooling) is rule
        assert other.keys.strategy == (said or "federated-averaging")


def test_no_word_names_a_preset_and_a_rule() -> None:
    assert not set(presets.spellings()) & set(pooling_rules.spellings())


def test_another_strategy_replaces_that_of_a_finished_run(tmp_path: Path) -> None:
    """A run's config.toml has all keys: they would hide the other strategy's values."""
    finished = resolve({"strategy": "conflation", "seed": 3, "weighting": "equal"})
    RunFolder.create(tmp_path, "first", finished.values, {}, finished.given)
    file = str(tmp_path / "first" / "config.toml")
    again = resolve(read_run_config([file]))
    assert again == finished
    for changed in (
        resolve(read_run_config([file, 'strategy="fedavgm"'])),
        finished.replace(strategy="fedavgm"),
    ):
        assert changed.pooling.name == "naive-weighted-averaging"
        assert changed.values["server-momentum"] == 0.9
        assert (changed.keys.seed, changed.weighting.name) == (3, "equal")
    given_again = finished.replace(seed=4).replace(strategy="fedavgm")
    assert (given_again.keys.seed, given_again.weighting.name) == (4, "equal")
    # A file of a person's own says what it says.
    own = tmp_path / "own.toml"
    own.write_text('server-optimizer = "adam"\n', encoding="utf-8")
    mixed = resolve(read_run_config([str(own), 'strategy="fedavgm"']))
    assert mixed.server_optimizer.name == "adam"


@pytest.mark.parametrize(
    "method",
    [
        *({"strategy": strategy} for strategy in PRESETS),
        {"inference": "flipout", "start": "mean-own-variances"},
        {"start": "initial-network"},
    ],
    ids=str,
)
@pytest.mark.parametrize("attack", [name for name in attacks.names() if name != "none"])
def test_an_attack_goes_with_all_methods_but_those_that_keep_what_was_sent(
    method: Values, attack: str
) -> None:
    """Another client's half would make of a corrupted update a state to train on from."""
    given = {**method, "attack": attack, "attackers": 1}
    trained = Trained(
        received=POSTERIOR,
        sent=POSTERIOR,
        broadcast={name: np.zeros(3, np.float32) for name in ("control-mean", "control-point")},
        examples=10,
        steps=5,
        learning_rate=0.1,
        trainable=np.ones(3, bool),
    )
    other = replace(POSTERIOR, mean=-POSTERIOR.mean, variance=2 * POSTERIOR.variance)
    lie = replace(trained, sent=other)
    keeps = False
    for part in resolve(method).parts:
        begun = part.begin_client(POSTERIOR)
        honest, hostile = (part.conclude(begun, made)[1] for made in (trained, lie))
        keeps |= any(not np.array_equal(honest[name], hostile[name]) for name in honest)
    if keeps:
        with pytest.raises(ConfigurationError, match=f"attack '{attack}'"):
            resolve(given)
    else:
        resolve(given)


@pytest.mark.parametrize("rule", pooling_rules.names())
def test_any_rule_goes_with_server_momentum(rule: str) -> None:
    given = {"strategy": rule, "server-optimizer": "momentum", "server-momentum": 0.9}
    if "factors" in pooling_rules.create(rule).has():
        with pytest.raises(ConfigurationError, match="step beyond the pool"):
            resolve(given)
    else:
        assert resolve(given).server_optimizer.active


def test_declared_properties_are_known_and_had_by_some_part() -> None:
    """A requirement that nothing can meet, or an exclusion of nothing, is a slip of the pen."""
    components = [c() for registry in REGISTRIES for c in registry.classes()]
    keys = {kind.key for kind in SLOTS} | default_values().keys()
    for component in components:
        named = component.has() | component.requires() | component.excludes()
        assert named <= PROPERTIES.keys(), component
    assert {known.key for known in PROPERTIES.values()} <= keys
    wanted = {name for c in components for name in c.requires() | c.excludes()}
    assert wanted <= PROPERTIES.keys()
    assert {"gaussian", "plain-steps", "cavity"} <= wanted | {"gaussian"}
    assert all(("gaussian" in i().has()) == i.gaussian for i in inferences.classes())


def test_parts_of_one_registry_share_their_settings_and_resolve_to_themselves() -> None:
    """Clients resolve the values that a server sends; both optimizers must stay what they are."""
    for first, second in (("adam", "sgd"), ("sgd", "adam"), ("sgd", "sgd")):
        given = {"optimizer": first, "personal-optimizer": second, "momentum": 0.5}
        configuration = resolve(given)
        again = resolve(configuration.values)
        assert again.optimizer == configuration.optimizer
        assert again.personal_optimizer == configuration.personal_optimizer


SECRET: dict[str, dict[str, Any]] = {
    "masked": {"exchange": "masked"},
    "noise of clients": {"outgoing": "clip+noise", **PRIVATE},
    "noise of the server": {
        "outgoing": "clip+noise",
        "noise-at": "server",
        "pooling": "log-variance-averaging",
        **PRIVATE,
    },
    "noise on examples": {
        "example-privacy": "dp-sgd",
        "round-retries": 0,
        "normalization": "group",
    },
}


@pytest.mark.parametrize("secret", SECRET.values(), ids=SECRET)
def test_what_is_secret_goes_with_no_heads_of_clients(secret: dict[str, Any]) -> None:
    assert not resolve({"strategy": "nwa", **secret}).shared.partial
    heads = {"strategy": "fedavg", "shared": "body", "evaluated-by": "clients"}
    with pytest.raises(ConfigurationError, match="secrecy"):
        resolve({**heads, **secret})
    assert resolve({**heads, "outgoing": "clip+noise", "noise-multiplier": 0.0}).shared.partial
