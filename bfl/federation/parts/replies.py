"""Check what the halves of a part send, and what a client keeps, against its declaration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.errors import ConfigurationError, RunError, public
from bfl.federation.parts.part import Arrays, DeclaredArray, Part
from bfl.posteriors import Posterior


def check_concluded(part: Part, sent: Arrays, kept: Arrays, received: Posterior) -> None:
    """Refuse arrays that a part's ``conclude`` gives beyond what the part declares.

    The values are the server's to check (``DeclaredArray.problem``): training that has diverged is
    no fault of the part's.

    Args:
        part: The part.
        sent: What it sends besides the posterior.
        kept: What it keeps.
        received: The posterior that the client was sent, which gives the sizes.

    Raises:
        ConfigurationError: An array is sent that ``replies`` does not declare, or is missing, or is
            of another type or shape; or a part without a name for its client's state keeps some.
    """
    problem = named_problem(sent, part.replies(received))
    if problem:
        refusal = ConfigurationError(
            f"part '{part.name}' sends {problem} besides its posterior, and its replies declare "
            f"{_declared(part.replies(received))}"
        )
        raise public(refusal)
    if kept and not part.client_state_name:
        refusal = ConfigurationError(
            f"part '{part.name}' keeps {', '.join(sorted(kept))} on its client and has no name to "
            "keep it under; allowed: a state_name and keeps_on_clients=True, or nothing kept"
        )
        raise public(refusal)


def check_broadcast(part: Part, sent: Arrays, posterior: Posterior) -> None:
    """Refuse, on the server, arrays that a part's ``broadcast`` gives beyond what it declares.

    Args:
        part: The part.
        sent: What it sends besides the posterior.
        posterior: The global posterior, which gives the sizes.

    Raises:
        ConfigurationError: An array is sent that ``sent`` does not declare, or is missing, or is of
            another type or shape.
        RunError: One has values that are not finite, or out of its range.
    """
    declared = part.sent(posterior)
    if problem := named_problem(sent, declared):
        raise ConfigurationError(
            f"part '{part.name}' broadcasts {problem} besides the posterior, and its sent declares "
            f"{_declared(declared)}"
        )
    if problem := _values_problem(sent, declared):
        raise RunError(f"part '{part.name}' broadcasts what clients refuse: {problem}")


def check_received(parts: Iterable[Part], received: Arrays, posterior: Posterior) -> None:
    """Refuse, on a client, arrays from the server that are not those that the parts declare.

    Args:
        parts: The parts of the method.
        received: What came besides the posterior.
        posterior: The posterior that came, which gives the sizes.

    Raises:
        RunError: An array is missing, is of another type or shape, or has values that are not
            finite or out of its range; or no part declares it.
    """
    declared = [array for part in parts for array in part.sent(posterior)]
    problem = named_problem(received, declared) or _values_problem(received, declared)
    if problem:
        refusal = RunError(
            f"the server has sent, besides the posterior, {problem}; the parts of the method "
            f"declare {_declared(declared)}"
        )
        raise public(refusal)


def _values_problem(arrays: Arrays, declared: Iterable[DeclaredArray]) -> str:
    problems = (array.problem(np.asarray(arrays[array.name])) for array in declared)
    return next(filter(None, problems), "")


def named_problem(arrays: Mapping[str, npt.NDArray[Any]], declared: Iterable[DeclaredArray]) -> str:
    """Return which array is not as declared, for people; empty: all are, and none is missing."""
    expected = {array.name: array for array in declared}
    for name in sorted(arrays.keys() - expected.keys()):
        return f"an array '{name}'"
    for name in sorted(expected.keys() - arrays.keys()):
        return f"no array '{name}'"
    for name, array in arrays.items():
        form = np.asarray(array)
        if form.dtype != np.dtype(expected[name].dtype) or form.shape != expected[name].shape:
            return f"the array '{name}' as {form.dtype} {form.shape}"
    return ""


def _declared(declared: Iterable[DeclaredArray]) -> str:
    forms = [f"'{array.name}' as {array.dtype} {array.shape}" for array in declared]
    return ", ".join(forms) or "none"
