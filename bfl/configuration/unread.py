"""Find values that are given and that nothing reads: a warning, no reason to refuse."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from bfl.aggregation.ensemble import any_sampled
from bfl.aggregation.samplers import samplers
from bfl.configuration.component_slots import REGISTRIES
from bfl.configuration.configuration import Configuration
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
    if key in READ_BY_SOURCES:
        dataset = configuration.keys.dataset
        source, _ = source_and_location(dataset)
        reads = key in source.reads_keys or source.name == "tasks"
        return "" if reads else f"dataset is '{dataset}'"
    switches = (*_of_training(configuration), *_of_evaluation(configuration))
    return next((reason for off, reason, keys in switches if off and key in keys), "")


Switch = tuple[bool, str, Collection[str]]
"""A switch of keys: is it off, why nothing reads them then, and which ones they are."""


def _of_training(of: Configuration) -> Iterator[Switch]:
    """Yield the switches of keys that training or the pool reads."""
    keys, words = of.keys, of.words
    yield of.example_privacy.active, _is(of, "example-privacy"), ["batch-size"]
    yield words["attack"] == "none", _is(of, "attack"), ["attackers"]
    yield not keys.image_size, "image-size is 0", ["image-fit"]
    pretraining = [key for key in default_values() if key.startswith("pretrain-")]
    yield not keys.pretrain_examples, "pretrain-examples is 0", pretraining
    own = ["server-examples", "server-labels", "best-metric"]
    yield not keys.server_data, "server-data is ''", own
    personal = ["personal-inference", "personal-optimizer", "personal-prior"]
    yield words["personalization"] == "none", _is(of, "personalization"), personal
    yield not of.workload.reads_local_epochs, f"workload is '{of.workload.name}'", ["local-epochs"]
    points, why = not of.inference.gaussian, f"inference is '{of.inference.name}'"
    yield points, f"{why}, which has no variances", ["scale-floor", priors.kind]
    personal_priors = of.personalization.active and of.personal_inference.gaussian
    no_prior = points and not personal_priors
    yield no_prior, f"{why}, which has no variances", _settings(priors)
    # Pre-training, which the server does, has no personal models.
    meme = of.personalization.trains_meme or bool(keys.pretrain_examples)
    why = f"personalization is '{of.personalization.name}', whose rate is personal-learning-rate"
    yield not meme, why, ["learning-rate"]
    unsampled = not any_sampled(of.components)
    drawn = {samplers.kind, *_settings(samplers)}
    yield unsampled, "no member of an ensemble is a sample", drawn
    trains = of.refinement.needs_server
    yield not trains, f"refinement is '{of.refinement.name}'", ["student-augmentation"]


def _of_evaluation(of: Configuration) -> Iterator[Switch]:
    """Yield the switches of keys that evaluations read."""
    keys = of.keys
    idle = "nothing that the server's network computes enters the result"
    yield not of.server_network_decides, idle, ["server-threads"]
    # Clients evaluate their last round, whatever else they do.
    by_clients = keys.evaluated_by == "clients"
    rounds = keys.evaluate_every or keys.server_data or by_clients
    yield not rounds, "evaluate-every is 0", ["evaluate-mc-samples"]
    read = {"evaluate-every", "evaluate-mc-samples", "test-examples", *_settings(metrics)}
    nobody = "server-evaluates is false and evaluated-by is 'server'"
    yield not (keys.server_evaluates or by_clients), nobody, read
    heads = f"shared is '{of.shared.name}', so the server evaluates no final posterior"
    yield of.shared.partial, heads, ["mc-samples"]
    at_mean, why = keys.evaluate_at == "mean", "evaluate-at is 'mean'"
    yield at_mean, why, ["mc-samples", "pretrain-mc-samples"]
    # What the server's own images weigh is evaluated by draws all the same.
    yield at_mean and not keys.server_data, why, ["evaluate-mc-samples"]


def _is(of: Configuration, key: str) -> str:
    return f"{key} is '{of.words[key]}'"


def _settings(registry: Registry[Any]) -> frozenset[str]:
    """Return the settings of all that are registered."""
    return frozenset(key for part in registry.classes() for key in part.setting_keys())
