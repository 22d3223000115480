"""Refuse what a server without a network cannot do (``server-evaluates=false``)."""

from __future__ import annotations

from collections.abc import Iterator

from bfl.configuration.component_slots import Parts
from bfl.configuration.keys import Keys
from bfl.data.corruptions import corruption_names


def needs_of_a_network(keys: Keys, parts: Parts) -> Iterator[str]:
    """Yield what is configured that a server needs a network for, where it has none.

    Args:
        keys: The keys of every run.
        parts: What the other keys have picked.
    """
    if keys.server_evaluates:
        return
    asking = {
        name: part.name
        for name, part in (("refinement", parts.refinement), ("weighting", parts.weighting))
        if part.needs_server
    }
    needed = {
        **asking,
        "pretrain-examples": keys.pretrain_examples,
        # Where a part asks for them, to have none is no way out.
        "server-data": keys.server_data if not asking else "",
        "predictive": not parts.predictive.idle and parts.predictive.name,
        "ood-dataset": keys.ood_dataset,
        "corruptions": " + ".join(corruption_names(keys.corruptions)),
        "shared": parts.shared.partial and parts.shared.name,
    }
    for key, value in needed.items():
        if value:
            yield (
                f"server-evaluates is false and {key} is {value!r}, for which the server needs a "
                f"network; allowed: server-evaluates=true, or {_without(key)}"
            )


def _without(key: str) -> str:
    """Return in words what there is to be nothing of."""
    return "another weighting" if key == "weighting" else f"no {key}"
