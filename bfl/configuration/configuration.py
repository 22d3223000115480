"""A run's configuration: flat keys and values resolved to keys, parts and their settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pydantic

from bfl import plugins
from bfl.aggregation.server import UsesServer
from bfl.closing.base import HELD_BACK_SHARE
from bfl.configuration import compatibility, settings
from bfl.configuration.component_slots import OF_EVERY_RUN, REGISTRIES, SLOTS, ComponentSlot
from bfl.configuration.keys import SERVER_ONLY_KEYS, Keys
from bfl.configuration.picked_parts import PickedParts
from bfl.configuration.settings import Value
from bfl.data import datasets
from bfl.data.datasets import foreign
from bfl.data.datasets.server_data import absolute_server_data
from bfl.errors import ConfigurationError
from bfl.federation.outgoing import is_private
from bfl.federation.parts import TwoSidedPart
from bfl.federation.privacy import Mechanism
from bfl.presets import presets
from bfl.registry import Component, kebab
from bfl.texts import counted


@dataclass(frozen=True, kw_only=True)
class Configuration(PickedParts):
    """A run's configuration: the keys of every run, and the components that they pick.

    Attributes:
        words: The full names of the parts, by the key that picks them.
        settings_of_every_run: The settings of components of which every run has all.
        given: The keys that were given, with their values; the others are strategy's and defaults.
    """

    keys: Keys
    words: Mapping[str, str]
    settings_of_every_run: Mapping[str, Value]
    given: Mapping[str, Value] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def values(self) -> dict[str, Value]:
        """The flat keys and values that resolve to this configuration."""
        return {**self._merge(SLOTS), **self.settings_of_every_run}

    def for_clients(self, *, paths: bool = True) -> dict[str, Value]:
        """Return the flat keys and values that clients read, not those of the server alone.

        Of the latter an exchange may have clients check some.

        Args:
            paths: Whether the clients look for the run's data where the server has them.
        """
        checked = self.exchange.clients_check
        merged = self._merge(k for k in SLOTS if not k.server_only or k.key in checked)
        merged |= self.settings_of_every_run
        if not paths:
            merged = without_paths(merged)
        return {key: value for key, value in merged.items() if key not in SERVER_ONLY_KEYS}

    def _merge(self, kinds: Iterable[ComponentSlot]) -> dict[str, Value]:
        merged: dict[str, Value] = self.keys.model_dump(by_alias=True)
        chosen = tuple(kinds)
        merged.update({kind.key: self.words[kind.key] for kind in chosen})
        for kind in chosen:
            for component in self.picked(kind):
                merged.update(component.model_dump(by_alias=True))
        merged.pop("depth", None)  # of an architecture it is part of its word
        return merged

    def picked(self, kind: ComponentSlot) -> tuple[Component, ...]:
        """Return the components of a kind: one or, of a chain, several."""
        picked = getattr(self, kind.attribute)
        return picked if kind.chain else (picked,)

    @property
    def components(self) -> tuple[Component, ...]:
        """The components picked, one of each kind or, of a chain, several."""
        return tuple(component for kind in SLOTS for component in self.picked(kind))

    @cached_property
    def parts(self) -> tuple[TwoSidedPart, ...]:
        """Parts with a half on the server or one on the clients; none of pre-training."""
        main = [kind for kind in SLOTS if kind.key == kind.registry.kind]
        components = [component for kind in main for component in self.picked(kind)]
        return tuple(c for c in components if isinstance(c, TwoSidedPart) and c.acts)

    @property
    def closes(self) -> bool:
        """True if a closing round follows the last one."""
        return any(each.measurements() for each in self.closing)

    @property
    def held_back_share(self) -> float:
        """The share of its examples that each client holds back from training."""
        return self.keys.calibration_share or (HELD_BACK_SHARE if self.closes else 0.0)

    @property
    def server_network_decides(self) -> bool:
        """True if what the server's network computes enters the result, and so its threads do.

        A part may need it; pre-training and validation pick an epoch or a round by it.
        """
        keys = self.keys
        needed = any(isinstance(c, UsesServer) and c.needs_server for c in self.components)
        return needed or bool(keys.pretrain_examples or (keys.server_data and keys.server_labels))

    @property
    def title(self) -> str:
        """Title of the run for people: data and partition, network, strategy and length."""
        return f"{self.keys.dataset}, {self.partition.name} partition; {self.method}"

    @property
    def method(self) -> str:
        """Network, strategy and length of the run."""
        keys, strategy, rule = self.keys, self.keys.strategy, self.pooling.name
        method = rule if strategy == rule else f"{strategy} ({rule})"
        epochs = counted(self.workload.expected_epochs(keys.local_epochs), "local epoch")
        return (
            f"{self.words['model']}, {self.inference.name}; {method}, {self.weighting.name} "
            f"weighting; {counted(keys.rounds, 'round')} of {epochs}"
            f"{' on average' if self.workload.active else ''}"
        )

    @cached_property
    def attackers(self) -> int:
        """The number of hostile clients, which are those of the first partition ids."""
        return self.keys.attackers if self.attack.active else 0

    @cached_property
    def hides_measurements(self) -> bool:
        """True if clients send no number that they have measured besides their updates."""
        return self.example_privacy.private or is_private(self.outgoing)

    @cached_property
    def nodes_keep_metrics(self) -> str:
        """Why nodes do not test the final model on data of their own; empty: they do."""
        reasons = {
            "a run with noise sends no metrics": self.hides_measurements,
            f"exchange='{self.exchange.name}' sends sums alone": self.exchange.secure_sums,
            "clients have heads of their own": self.shared.partial,
            "evaluate-every is 0": not self.keys.evaluate_every,
        }
        return next((reason for reason, holds in reasons.items() if holds), "")

    def replace(self, **changes: Value) -> Configuration:
        """Return the configuration with other values for some keys (underscores for hyphens)."""
        return resolve({**self.given, **{kebab(key): value for key, value in changes.items()}})

    def with_known(self, **known: Value) -> Configuration:
        """Return the configuration with keys that the nodes have told, which are not checked."""
        given = {kebab(key): value for key, value in known.items()}
        return replace(self, keys=self.keys.model_copy(update=known), given={**self.given, **given})


def mechanisms(configuration: Configuration) -> tuple[Mechanism, ...]:
    """Return the noised releases of clients, those of whole ones first."""
    of_updates = [part.mechanism() for part in configuration.outgoing]
    found = (*of_updates, configuration.example_privacy.mechanism())
    return tuple(mechanism for mechanism in found if mechanism)


def without_paths(values: Mapping[str, Value]) -> dict[str, Value]:
    """Return flat keys and values as they are for clients that do not look for the run's data."""
    dataset = datasets.portable_dataset(str(values.get("dataset", "")))
    return {**values, "dataset": dataset, "data-dir": ""}


def resolve(
    values: Mapping[str, Any],
    *,
    check_data: bool = True,
    check_parts: bool = True,
    on_client: bool = False,
    plugins_of_node: str | None = None,
) -> Configuration:
    """Return the configuration that flat keys and values describe.

    What is given wins over the strategy's values, and those over defaults of keys and components.

    Args:
        values: The keys, kebab-case, and their values; see ``given_values`` for which are given.
        check_data: Whether the data set must be on this machine.
        check_parts: Whether the parts must go together.
        on_client: Whether the values are those of ``for_clients``, without the server's.
        plugins_of_node: Where plugins are on a node, see ``load_plugins``.

    Raises:
        ConfigurationError: Some values are refused. The message has one line for each.
    """
    named = plugins.named_plugins(settings.given_values(values))
    loaded = plugins.load_plugins(named, plugins_of_node)
    given = settings.given_values(values)
    # What is typed in another encoding is read as such characters, which no file of a run takes.
    _raise_if_any(
        [
            f"{key} is {value!r}; allowed: text that can be written as UTF-8"
            for key, value in given.items()
            if isinstance(value, str) and re.search("[\ud800-\udfff]", value)
        ]
    )
    # Settings in a text, as Flower does not know their keys.
    text = given.get("plugin-settings", "")
    given = {**(settings.parse_pairs(text) if isinstance(text, str) else {}), **given}

    # Which keys there are, and what the strategy says of them.
    known = settings.default_values()
    unknown = [key for key in given if key not in known]
    problems = [settings.unknown_key(key, known) for key in unknown]
    strategy = settings.NO_STRATEGY
    word = given.get("strategy", settings.default_strategy(given))
    if isinstance(word, str):
        with _collect(problems):
            strategy = settings.named_strategy(word)
    problems += [
        f"strategy '{word}' sets a key that is none: {settings.unknown_key(key, known)}"
        for key in strategy.values
        if key not in known
    ]
    complete = {**strategy.values, **given}

    # The values, also of components that the run does not pick, and the parts.
    of_every_run = Keys().model_dump(by_alias=True).keys()
    of_parts = {key: value for key, value in complete.items() if key not in of_every_run}
    for component in (each for registry in REGISTRIES for each in registry.classes()):
        if own := {key: of_parts[key] for key in component.setting_keys() & of_parts.keys()}:
            with _collect(problems):
                component(**own)
    picked = _pick_parts(complete, problems)
    with _collect(problems):
        keys = Keys(**{key: value for key, value in complete.items() if key in of_every_run})
    _raise_if_any(problems)
    keys = keys.model_copy(update=_read_references(keys, check_data=check_data))

    words = {key: word for key, (word, _) in picked.items()}
    # A rule's name says nothing but ``pooling``, which may be given as well, and wins.
    name = words["pooling"] if strategy.only_a_rule else strategy.name
    used = [each for registry in OF_EVERY_RUN for each in registry.classes()]
    settings_of_every_run = {
        key: complete.get(key, declared.default)
        for each in used
        for key, declared in settings.settings_of(each).items()
    }
    used += [type(part) for _, parts in picked.values() for part in parts]
    sources = datasets.dataset_sources, keys.dataset.partition(":")[0]
    used += [registry.get(n) for registry, n in ((presets, name), sources) if n in registry]
    places = ", ".join(plugin.place for plugin in plugins.used_plugins(loaded, used))
    chosen: dict[str, Any] = {
        kind.attribute: picked[kind.key][1] if kind.chain else picked[kind.key][1][0]
        for kind in SLOTS
    }
    configuration = Configuration(
        keys=keys.model_copy(update={"strategy": name, "plugins": places, "plugin_settings": ""}),
        words=words,
        settings_of_every_run=settings_of_every_run,
        **chosen,
    )
    if check_parts:
        _raise_if_any(
            compatibility.all_contradictions(configuration, strategy, given, on_client=on_client)
        )
    # The given values that parts read: words and paths in full, and what stood behind a colon.
    read = {*given, *(part.behind_colon for _, parts in picked.values() for part in parts)}
    in_full = {key: value for key, value in configuration.values.items() if key in read}
    return replace(configuration, given={**given, **in_full})


def _pick_parts(
    given: Mapping[str, Any], problems: list[str]
) -> dict[str, tuple[str, tuple[Component, ...]]]:
    """Return by key the full name of what it picks, and the parts; add what cannot be picked."""
    picked: dict[str, tuple[str, tuple[Component, ...]]] = {}
    shared: dict[str, dict[str, Any]] = {}
    for kind in sorted(SLOTS, key=lambda kind: kind.key != kind.registry.kind):
        word = given.get(kind.key, kind.default)
        if not isinstance(word, str):
            problems.append(f'{kind.key} is {word!r}; allowed: a string in "quotes"')
            continue
        refused: list[str] = []
        with _collect(refused):
            own = shared.setdefault(kind.registry.kind, {})
            parts = kind.pick(word, {**own, **given})
            picked[kind.key] = (kind.word(parts, word), parts)
            for part in parts if not kind.chain else ():
                own.update({**part.model_dump(by_alias=True), **own})
        # A registry names what it holds, and two keys may pick from one.
        problems += [
            text if kind.key in text or text in problems else f"{kind.key}: {text}"
            for text in refused
        ]
    return picked


def _read_references(keys: Keys, *, check_data: bool) -> dict[str, Any]:
    """Return the attributes of keys that name metrics, or data on this machine, in full."""
    problems: list[str] = []
    update: dict[str, Any] = {}
    with _collect(problems):
        foreign.corruption_names(keys.corruptions)
    if check_data:
        where = keys.dataset, keys.data_dir
        with _collect(problems):
            update["server_data"] = absolute_server_data(keys.server_data, *where)
        with _collect(problems):
            update["ood_dataset"] = foreign.absolute_foreign(keys.ood_dataset, keys.data_dir)
        with _collect(problems):
            datasets.validate_dataset(*where)
            update["dataset"], update["data_dir"] = datasets.absolute_dataset(*where)
    _raise_if_any(problems)
    return update


def refuse_unread(configuration: Configuration, values: Mapping[str, Any]) -> None:
    """Raise ConfigurationError for settings that are given for parts that are not picked."""
    problems = []
    for key in settings.given_values(values).keys() - configuration.values.keys():
        readers = [
            f"{registry.kind} {' or '.join(names)}"
            for registry in REGISTRIES
            if (names := [c.name for c in registry.classes() if key in c.setting_keys()])
        ]
        problems.append(
            f"unknown key '{key}': no part of this run has it; it is of {', '.join(readers)}; "
            f"""allowed: without it ({key}="" takes back what a file says)"""
        )
    _raise_if_any(sorted(problems))


def _raise_if_any(problems: list[str]) -> None:
    if problems:
        raise ConfigurationError("\n".join(dict.fromkeys(problems)))


@contextmanager
def _collect(problems: list[str]) -> Iterator[None]:
    try:
        yield
    except pydantic.ValidationError as error:
        problems += settings.refused_values(error)
    except ConfigurationError as error:
        problems.append(str(error))
