"""Find values that are given and that nothing reads: a warning, no reason to refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from bfl.aggregation.ensemble import any_sampled
from bfl.aggregation.samplers import samplers
from bfl.configuration.component_slots import REGISTRIES
from bfl.configuration.configuration import Configuration
from bfl.configuration.pairs import Value
from bfl.configuration.settings import default_values
from bfl.data.datasets import source_and_location
from bfl.data.datasets.reading import LEFT_OUT, TARGET, TASK, TEST_SHARE, UNREADABLE
from bfl.evaluation.metrics import metrics
from bfl.learning.priors import priors
from bfl.registry import Registry

READ_BY_SOURCES = (TEST_SHARE, TARGET, LEFT_OUT, TASK, UNREADABLE)
"""Keys that some sources of data sets go by."""


def unread_settings(configuration: Configuration, given: Iterable[str]) -> list[str]:
    """Return a sentence for each key that is given and that no chosen part of the run reads."""
    return [
        f"{key} is given, and nothing in this run reads it: {reader}"
        for key in given
        if (key not in configuration.values and (reader := _readers(key)))
        or (reader := _switched_off(configuration, key))
        or (reader := _idle(configuration, key))
    ]


def _readers(key: str) -> str:
    """Return which parts would read a setting."""
    readers: list[str] = []
    for registry in REGISTRIES:
        names = [c.name for c in registry.classes() if key in c.setting_keys()]
        readers += [f"{registry.kind} {' or '.join(names)}"] if names else []
    return f"{', '.join(readers)} would" if readers else ""


def _idle(configuration: Configuration, key: str) -> str:
    """Return why none of the chosen parts that have a setting reads it as they are set."""
    reasons: dict[str, None] = {}
    for component in configuration.components:
        if key in component.setting_keys():
            field = type(component).model_fields[key.replace("-", "_")]
            reason = component.idle_settings().get(key, "")
            if not reason or configuration.values.get(key) == field.default:
                return ""
            reasons[reason] = None
    return ", ".join(reasons)


def _switched_off(configuration: Configuration, key: str) -> str:
    """Return why a key of every run has no effect in this one."""
    if configuration.values.get(key) == default_values().get(key):
        return ""
    reasons = (switch.reason(configuration) for switch in _switches() if switch.has(key))
    return next(filter(None, reasons), "")


@dataclass(frozen=True)
class Switch:
    """Switch that turns off keys of a run.

    Attributes:
        reason: Says why nothing reads them in a run of a configuration; empty: something does.
        beginning: What the names of others begin with; empty: there are no others.
    """

    reason: Callable[[Configuration], str]
    keys: frozenset[str] = frozenset()
    beginning: str = ""

    def has(self, key: str) -> bool:
        """Return whether a key is one of these."""
        return key in self.keys or (bool(self.beginning) and key.startswith(self.beginning))


def _switches() -> tuple[Switch, ...]:
    """Return all that there are."""
    of_metrics = _settings(metrics)
    return (
        Switch(_if_batches_are_secret, frozenset({"batch-size"})),
        Switch(_if_other_is("attack", "none"), frozenset({"attackers"})),
        Switch(_if_other_is("image-size", 0), frozenset({"image-fit"})),
        *(Switch(_if_no_data_set_reads(k), frozenset({k})) for k in READ_BY_SOURCES),
        Switch(_if_other_is("pretrain-examples", 0.0), beginning="pretrain-"),
        Switch(
            _if_other_is("server-data", ""),
            frozenset({"server-examples", "server-labels", "best-metric"}),
        ),
        Switch(
            _if_other_is("personalization", "none"),
            frozenset({"personal-inference", "personal-optimizer", "personal-prior"}),
        ),
        Switch(_if_epochs_are_drawn, frozenset({"local-epochs"})),
        Switch(_if_nothing_is_gaussian, frozenset({"scale-floor", priors.kind})),
        Switch(_if_no_prior_is_read, _settings(priors)),
        Switch(_if_the_servers_network_decides_nothing, frozenset({"server-threads"})),
        Switch(_if_no_round_is_evaluated, frozenset({"evaluate-mc-samples"})),
        Switch(
            _if_nobody_evaluates,
            frozenset({"evaluate-every", "evaluate-mc-samples", "test-examples", *of_metrics}),
        ),
        Switch(_if_all_have_heads, frozenset({"mc-samples"})),
        Switch(_if_evaluated_at_the_mean, frozenset({"mc-samples", "pretrain-mc-samples"})),
        Switch(_if_only_evaluated_at_the_mean, frozenset({"evaluate-mc-samples"})),
        Switch(_if_the_meme_is_not_trained, frozenset({"learning-rate"})),
        Switch(_if_nothing_is_sampled, frozenset({samplers.kind, *_settings(samplers)})),
        Switch(_if_the_server_trains_nothing, frozenset({"student-augmentation"})),
    )


def _settings(registry: Registry[Any]) -> frozenset[str]:
    """Return the settings of all that are registered."""
    return frozenset(key for part in registry.classes() for key in part.setting_keys())


def _if_other_is(key: str, nothing: Value) -> Callable[[Configuration], str]:
    """Return what says that another key has the value that switches these off."""
    said = f"'{nothing}'" if isinstance(nothing, str) else f"{nothing:g}"
    return lambda of: f"{key} is {said}" if of.values.get(key) == nothing else ""


def _if_no_data_set_reads(key: str) -> Callable[[Configuration], str]:
    """Return what says that the data set does not go by a key."""

    def reason(configuration: Configuration) -> str:
        dataset = configuration.keys.dataset
        source, _ = source_and_location(dataset)
        reads = key in source.reads_keys or source.name == "tasks"
        return "" if reads else f"dataset is '{dataset}'"

    return reason


def _if_epochs_are_drawn(configuration: Configuration) -> str:
    workload = configuration.workload
    return "" if workload.reads_local_epochs else f"workload is '{workload.name}'"


def _if_nothing_is_gaussian(configuration: Configuration) -> str:
    inference = configuration.inference
    return "" if inference.gaussian else f"inference is '{inference.name}', which has no variances"


def _if_no_prior_is_read(configuration: Configuration) -> str:
    personal = configuration.personalization.active and configuration.personal_inference.gaussian
    return "" if personal else _if_nothing_is_gaussian(configuration)


def _if_batches_are_secret(configuration: Configuration) -> str:
    privacy = configuration.words["example-privacy"]
    return f"example-privacy is '{privacy}'" if configuration.example_privacy.active else ""


def _if_no_round_is_evaluated(configuration: Configuration) -> str:
    keys = configuration.keys
    # Clients evaluate their last round, whatever else they do.
    evaluated = keys.evaluate_every or keys.server_data or keys.evaluated_by == "clients"
    return "" if evaluated else "evaluate-every is 0"


def _if_the_servers_network_decides_nothing(configuration: Configuration) -> str:
    decides = configuration.server_network_decides
    return "" if decides else "nothing that the server's network computes enters the result"


def _if_nobody_evaluates(configuration: Configuration) -> str:
    keys = configuration.keys
    evaluated = keys.server_evaluates or keys.evaluated_by == "clients"
    return "" if evaluated else "server-evaluates is false and evaluated-by is 'server'"


def _if_all_have_heads(configuration: Configuration) -> str:
    shared = configuration.shared
    why = f"shared is '{shared.name}', so the server evaluates no final posterior"
    return why if shared.partial else ""


def _if_evaluated_at_the_mean(configuration: Configuration) -> str:
    return "evaluate-at is 'mean'" if configuration.keys.evaluate_at == "mean" else ""


def _if_only_evaluated_at_the_mean(configuration: Configuration) -> str:
    # What the server's own images weigh is evaluated by draws all the same.
    return "" if configuration.keys.server_data else _if_evaluated_at_the_mean(configuration)


def _if_nothing_is_sampled(configuration: Configuration) -> str:
    return "" if any_sampled(configuration.components) else "no member of an ensemble is a sample"


def _if_the_server_trains_nothing(configuration: Configuration) -> str:
    refinement = configuration.refinement
    return "" if refinement.needs_server else f"refinement is '{refinement.name}'"


def _if_the_meme_is_not_trained(configuration: Configuration) -> str:
    personalization = configuration.personalization
    why = f"personalization is '{personalization.name}', whose rate is personal-learning-rate"
    # Pre-training, which the server does, has no personal models.
    read = personalization.trains_meme or configuration.keys.pretrain_examples
    return "" if read else why
