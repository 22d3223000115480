"""Warnings before a run, and of its clients in it: failures, and weights that few have."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from bfl.aggregation.ensemble import LEFT_OUT, any_sampled
from bfl.aggregation.refinements import AFTER, BEFORE
from bfl.aggregation.samplers import WeightedSampler
from bfl.aggregation.server_optimizers import ServerOptimizer
from bfl.configuration import Configuration
from bfl.federation.client_metrics import recorded
from bfl.federation.client_text import CONTINUED
from bfl.posteriors import Manifest, Posterior
from strategies.round import RoundReport
from strategies.validation import NOT_FINITE

FEW_EFFECTIVE_CLIENTS = 2.0 + 1e-6
"""Effective number of clients, of three or more, up to which a warning is given: one of them, or
two that send the same, outweigh all others."""


CLEAR_NATS, CLEAR_SHARE = 0.01, 0.01
"""By how much more a student's cross-entropy is clearly more: a late round's steps may change a
student that has learnt all, and say nothing."""


def said_first(configuration: Configuration) -> list[str]:
    """Return what is to be said of a configuration before the first round."""
    return [*unjudged_personal_models(configuration), *samples_beside_the_pool(configuration)]


def unjudged_personal_models(configuration: Configuration) -> list[str]:
    """Return what is to be said before the first round of personal models that nobody evaluates.

    Only a client has its own: what the server evaluates is the global model.
    """
    personalization = configuration.personalization
    if not personalization.active or configuration.keys.judged_by == "clients":
        return []
    what = (
        "the global model alone is evaluated"
        if personalization.trains_meme
        else "what is evaluated is the global model, which nobody trains"
    )
    return [
        f"personalization is '{personalization.name}' and judged-by is 'server': nobody evaluates "
        f'the clients\' personal models, and {what}; judged-by="clients" has each client do so'
    ]


def samples_beside_the_pool(configuration: Configuration) -> list[str]:
    """Return what is to be said before the first round of samples not drawn around the pool."""
    sampler, weighting = configuration.sampler, configuration.weighting.name
    if not isinstance(sampler, WeightedSampler) or not sampler.around_the_pool:
        return []
    if not any_sampled(configuration.components):
        return []
    same = sampler.weighting_alike.get(sampler.sample_weights)
    if same in (None, weighting):
        return []
    return [
        f"sampler '{sampler.name}' counts clients by sample-weights '{sampler.sample_weights}', "
        f"and they are pooled by weighting '{weighting}': unless both come to the same weights, "
        f"models are not sampled around the pooled one; with weighting='{same}' they are"
    ]


def unknown_moving_statistics(
    optimizer: ServerOptimizer, posterior: Posterior, manifest: Manifest | None
) -> list[str]:
    """Return what is to be said before the first round of steps that take statistics for weights.

    Without a manifest nobody knows which point parameters training moves by their gradient.
    """
    points = posterior.point.size
    if optimizer.idle or manifest or not points:
        return []
    return [
        f"server-optimizer '{optimizer.name}' moves all {points} point parameters, and could lead "
        "a moving variance of batch normalisation below 0: this Strategy has no manifest, which "
        "would say what are moving statistics; give it as manifest (bfl.posteriors.Manifest) if "
        "the network has some"
    ]


class Warnings:
    """Tells what goes wrong with clients: the same once, and again in one line.

    Args:
        say: Told each warning.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._told: set[str] = set()
        self._told_of_weights = False
        self._told_of_numbers: set[str] = set()

    def of_client(self, server_round: int, partition_id: int, text: str) -> None:
        """Tell that a client has failed or was refused."""
        last = text.strip().splitlines()[-1].removeprefix(CONTINUED)
        reason = text if text not in self._told else f"{last} (as before)"
        self._told.add(text)
        self._say(f"round {server_round}, client {partition_id}: {reason}")

    def of_weights(self, server_round: int, weighting: str, report: RoundReport) -> None:
        """Tell once if one client or two of at least three outweigh all others."""
        metrics, clients = report.metrics, len(report.clients)
        effective = metrics.get("effective-clients", math.inf)
        if self._told_of_weights or clients < 3 or effective > FEW_EFFECTIVE_CLIENTS:
            return
        self._told_of_weights = True
        self._say(
            f"round {server_round}: the weights of {clients} clients are worth {effective:.3g} "
            f"(effective-clients); the largest is {metrics['largest-weight']:.3g} (weighting "
            f"{weighting}); later rounds have the numbers in their records alone"
        )

    def of_numbers(self, server_round: int, metrics: Mapping[str, Any]) -> None:
        """Tell once of each number that says that logits were not finite, or nothing was learnt."""
        for name, value in metrics.items():
            if name.startswith(recorded("")):
                continue
            said = told_of_logits(name, value) or told_of_student(name, metrics)
            if said and name not in self._told_of_numbers:
                self._told_of_numbers.add(name)
                self._say(f"round {server_round}: {said}; later rounds have the number alone")


def told_of_student(name: str, metrics: Mapping[str, Any]) -> str | None:
    """Return in words that a student ends further from its targets than it began; None if not.

    Args:
        name: The number's name, ``distillation-after`` where anything is told.
        metrics: The round's numbers.
    """
    if name != AFTER:
        return None
    before, after = metrics.get(BEFORE, math.inf), metrics[name]
    if after <= before + max(CLEAR_NATS, CLEAR_SHARE * before):
        return None
    return (
        f"the student has come away from its targets, {after:.4g} nats after distillation "
        f"({AFTER}) and {before:.4g} before; its steps may be too large "
        "(distillation-learning-rate)"
    )


def told_of_logits(name: str, value: Any) -> str | None:
    """Return in words what a number says of logits that are not finite; None if nothing.

    Args:
        name: Its name, which is not a client's.
        value: The number.
    """
    if name.endswith(NOT_FINITE):
        what = f"{value:g} logits are not finite ({name}), so there are no metrics of them"
    elif name.endswith(LEFT_OUT):
        what = (
            f"{value:g} models of the ensemble are left out ({name}): their logits are not finite"
        )
    else:
        return None
    return f"{what}; a client may have sent too large values"
