"""All keys together, with the components they pick: resolved and checked in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pydantic
from pydantic.fields import FieldInfo

from bfl.attacks import Attack, attacks
from bfl.attacks.none import NoAttack
from bfl.augmentations import Augmentation, augmentations
from bfl.configuration.keys import Keys
from bfl.configuration.messages import refused_values, unknown_key
from bfl.datasets import absolute_dataset, validate_dataset
from bfl.datasets.server_data import absolute_server_data
from bfl.defences import Defence, defences
from bfl.errors import ConfigurationError
from bfl.inferences import Inference, inferences
from bfl.metrics import Metric, metrics
from bfl.models import Architecture, architectures, create_architecture
from bfl.optimizers import Optimizer, optimizers
from bfl.partitions import Partition, partitions
from bfl.pooling import PoolingRule, pooling_rules
from bfl.priors import Prior, priors
from bfl.registry import Component, Registry
from bfl.results.figures.base import figures
from bfl.tracking import Tracker, trackers
from bfl.uncertainty import uncertainties
from bfl.weightings import Weighting, weightings

Value = str | int | float | bool
"""A value of Flower's run configuration."""

REGISTRIES: tuple[Registry[Any], ...] = (
    partitions,
    architectures,
    inferences,
    pooling_rules,
    weightings,
    priors,
    optimizers,
    augmentations,
    attacks,
    defences,
    trackers,
    metrics,
    uncertainties,
    figures,
)
"""The registries whose components read settings of their own from the configuration."""

_OF_EVERY_RUN: tuple[Registry[Any], ...] = (metrics, uncertainties, figures)
"""The registries of which a run uses all components."""

_PICKED_BY: dict[str, tuple[str, Callable[[str, Mapping[str, Any]], Any]]] = {
    "partition": ("partition", partitions.create),
    "model": ("architecture", create_architecture),
    "inference": ("inference", inferences.create),
    "strategy": ("pooling", pooling_rules.create),
    "weighting": ("weighting", weightings.create),
    "prior": ("prior", priors.create),
    "pretrain-prior": ("pretrain_prior", priors.create),
    "optimizer": ("optimizer", optimizers.create),
    "augmentation": ("augmentation", augmentations.create),
    "attack": ("attack", attacks.create),
    "defence": ("defence", defences.create),
    "best-metric": ("best_metric", metrics.create),
    "log": ("tracker", trackers.create),
}
"""Which key picks which of a configuration's components, and what makes it."""


@dataclass(frozen=True)
class Configuration:
    """A run's configuration: the keys of every run, and the components that they pick."""

    keys: Keys
    partition: Partition
    architecture: Architecture
    inference: Inference
    pooling: PoolingRule
    weighting: Weighting
    prior: Prior
    pretrain_prior: Prior
    optimizer: Optimizer
    augmentation: Augmentation
    attack: Attack
    defence: Defence
    best_metric: Metric
    tracker: Tracker
    settings_of_every_run: Mapping[str, Value]

    @property
    def components(self) -> tuple[Component, ...]:
        """The components picked, one of each kind."""
        return tuple(getattr(self, name) for name, _ in _PICKED_BY.values())

    @property
    def title(self) -> str:
        """What a person reads of the run: data, network, rule and length."""
        keys = self.keys
        return (
            f"{keys.dataset}, {self.partition.name} partition; {keys.model}, "
            f"{self.inference.name}; {self.pooling.name}, {self.weighting.name} weighting; "
            f"{keys.rounds} rounds of {keys.local_epochs} local epochs"
        )

    @cached_property
    def values(self) -> dict[str, Value]:
        """The flat keys and values that resolve to this configuration."""
        merged: dict[str, Value] = self.keys.model_dump(by_alias=True)
        for component in self.components:
            merged.update(component.model_dump(by_alias=True))
        merged.update(self.settings_of_every_run)
        # An architecture's depth is part of its word.
        merged.pop("depth", None)
        return merged

    def attacks(self, partition_id: int) -> bool:
        """Return whether the client of a partition is a hostile one."""
        return partition_id < self.keys.attackers and not isinstance(self.attack, NoAttack)

    def replace(self, **changes: Value) -> Configuration:
        """Return the configuration with other values for some keys (underscores for hyphens)."""
        changed = {key.replace("_", "-"): value for key, value in changes.items()}
        return resolve({**self.values, **changed})


def component_defaults() -> dict[str, Value]:
    """Return the settings that components declare, with their defaults."""
    return {
        key: field.default
        for registry in REGISTRIES
        for component in registry.classes()
        for key, field in settings_of(component).items()
    }


def settings_of(component: type[Component]) -> dict[str, FieldInfo]:
    """Return the configuration keys that a component declares, with their fields.

    An architecture's depth is not among them: it is part of its word, as in ``resnet20``.
    """
    fields = zip(component.setting_keys(), component.model_fields.values(), strict=True)
    return {key: field for key, field in fields if key != "depth"}


def default_values() -> dict[str, Value]:
    """Return every key with its default: those of every run, then those of the components."""
    return {**Keys().model_dump(by_alias=True), **component_defaults()}


def resolve(values: Mapping[str, Any], *, check_data: bool = True) -> Configuration:
    """Return the configuration that flat keys and values describe; missing keys have defaults.

    Args:
        values: The keys, kebab-case, and their values.
        check_data: Whether the data set must be on this machine.

    Raises:
        ConfigurationError: Some values are refused. The message has one line for each: the key,
            what was given, what is allowed, and the nearest spelling.
    """
    defaults = default_values()
    core = Keys().model_dump(by_alias=True).keys()
    problems = [unknown_key(key, defaults) for key in values if key not in defaults]
    settings = {k: v for k, v in values.items() if k in defaults and k not in core}
    problems += _refused_settings(settings)
    with _collect(problems):
        keys = Keys(**{k: v for k, v in values.items() if k in core})
    _raise_if_any(problems)
    configuration = _pick(keys, settings, check_data)
    _raise_if_any(_contradictions(configuration))
    return configuration


def _pick(keys: Keys, settings: Mapping[str, Any], check_data: bool) -> Configuration:
    """Return the configuration with the components that the keys pick."""
    problems: list[str] = []
    picked: dict[str, Any] = {}
    for key, (name, create) in _PICKED_BY.items():
        refused: list[str] = []
        with _collect(refused):
            picked[name] = create(getattr(keys, key.replace("-", "_")), settings)
        # A registry names what it holds, and two keys may pick from one.
        problems += [text if key in text else f"{key}: {text}" for text in refused]
    dataset, data_dir, server_data = keys.dataset, keys.data_dir, keys.server_data
    if check_data:
        with _collect(problems):
            server_data = absolute_server_data(keys.server_data, keys.dataset, data_dir)
        with _collect(problems):
            validate_dataset(dataset, data_dir)
            dataset, data_dir = absolute_dataset(dataset, data_dir)
    _raise_if_any(problems)
    full_names = {
        key.replace("-", "_"): picked[name].name
        for key, (name, _) in _PICKED_BY.items()
        if key != "model"
    }
    data = {"dataset": dataset, "data_dir": data_dir, "server_data": server_data}
    keys = keys.model_copy(update={**full_names, **data})
    used = {
        key: settings.get(key, field.default)
        for registry in _OF_EVERY_RUN
        for component in registry.classes()
        for key, field in settings_of(component).items()
    }
    return Configuration(keys=keys, settings_of_every_run=used, **picked)


def _raise_if_any(problems: list[str]) -> None:
    if problems:
        raise ConfigurationError("\n".join(dict.fromkeys(problems)))


@contextmanager
def _collect(problems: list[str]) -> Iterator[None]:
    """Put what is refused inside on the list of problems instead of raising it."""
    try:
        yield
    except pydantic.ValidationError as error:
        problems += refused_values(error)
    except ConfigurationError as error:
        problems.append(str(error))


def _refused_settings(settings: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the settings of components, picked by the run or not."""
    problems: list[str] = []
    for registry in REGISTRIES:
        for component in registry.classes():
            given = {k: v for k, v in settings.items() if k in component.setting_keys()}
            if given:
                with _collect(problems):
                    component(**given)
    return problems


def _contradictions(configuration: Configuration) -> list[str]:
    """Return which choices, each fine alone, do not go together."""
    problems = []
    if configuration.keys.resume and not configuration.keys.name:
        problems.append("resume is True, but no run is named; give the key name (and output-dir)")
    if configuration.keys.jit == "on" and not configuration.architecture.compilable:
        problems.append(
            f"jit is 'on', and XLA cannot compile model '{configuration.keys.model}' "
            "deterministically; allowed: 'auto' or 'off'"
        )
    if configuration.keys.patience and not configuration.keys.server_data:
        problems.append(
            f"patience is {configuration.keys.patience}, and the server has no images of its own "
            "to validate with; allowed: 0, or set server-data"
        )
    inference, pooling = configuration.inference, configuration.pooling
    if inference.gaussian:
        return problems
    variational = ", ".join(i.name for i in inferences.classes() if i.gaussian)
    if configuration.weighting.requires_gaussian:
        others = ", ".join(w.name for w in weightings.classes() if not w.requires_gaussian)
        problems.append(
            f"weighting '{configuration.weighting.name}' compares posteriors and inference "
            f"'{inference.name}' has none; allowed: weighting {others}, or inference {variational}"
        )
    if not pooling.accepts_points:
        others = ", ".join(r.name for r in pooling_rules.classes() if r.accepts_points)
        problems.append(
            f"strategy '{pooling.name}' pools Gaussian posteriors and inference "
            f"'{inference.name}' has none, only points, which every strategy averages: it would be "
            f"plain averaging under another name; allowed: strategy {others}, or inference "
            f"{variational}"
        )
    return problems
