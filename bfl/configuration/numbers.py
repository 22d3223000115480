"""Refuse what is for classes alone where numbers are predicted (``task="regression"``)."""

from __future__ import annotations

from collections.abc import Iterator

from bfl.configuration.component_slots import Parts
from bfl.configuration.keys import Keys
from bfl.data.corruptions import corruption_names


def needs_of_classes(keys: Keys, parts: Parts) -> Iterator[str]:
    """Yield what is configured that takes classes, where numbers are predicted.

    Args:
        keys: The keys of every run.
        parts: What the other keys have picked.
    """
    if keys.task == "classification":
        return
    closing = [each.name for each in parts.closing if each.rounds]
    needed = {
        "server-data": (keys.server_data, "''"),
        "pretrain-examples": (keys.pretrain_examples, "0"),
        "ood-dataset": (keys.ood_dataset, "''"),
        "corruptions": ("+".join(corruption_names(keys.corruptions)), "'none'"),
        "evaluated-by": (keys.evaluated_by if keys.evaluated_by == "clients" else "", "'server'"),
        "closing": ("+".join(closing), "'none'"),
        "predictive": ("" if parts.predictive.idle else parts.predictive.name, "'posterior'"),
        "personalization": (
            parts.personalization.name if parts.personalization.active else "",
            "'none'",
        ),
        "shared": (parts.shared.name if parts.shared.partial else "", "'all'"),
        "weighting": (parts.weighting.name if parts.weighting.needs_server else "", "others"),
        "refinement": (parts.refinement.name if parts.refinement.needs_server else "", "'none'"),
    }
    for key, (value, allowed) in needed.items():
        if value:
            yield (
                f"task is '{keys.task}' and {key} is {value!r}, which is for classes; allowed: "
                f"{allowed}"
            )
