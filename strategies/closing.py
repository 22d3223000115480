"""The closing round on the server: clients are asked for sums, which finish the final network."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.closing import Closing
from bfl.closing.base import DEVIATION, SUMMED, Array, Known
from bfl.closing.chain import (
    asked,
    deviations,
    folded,
    greatest,
    implausible,
    length,
    most_rounds,
    told,
)
from bfl.closing.closed import begun
from bfl.errors import ConfigurationError, RunError
from bfl.federation.node_description import code_digest
from bfl.federation.secure_aggregation.masking import decoded, exponent_for
from bfl.federation.state import Snapshots
from bfl.federation.wire import CLOSE
from bfl.posteriors import Manifest, Posterior
from strategies.flower_clients import FlowerClients
from strategies.masked.clients import WantedSum, add_up
from strategies.method import Method
from strategies.round import TrainingRequest, training_request
from strategies.server_state import ServerState

CLOSING = "closing"
"""The folder in a run's with the sums' results so far."""

ROUNDS_MADE = "closing-rounds-made"
"""The array, and the metric, with the number of rounds of sums made."""

_OF, _CODE = "of-posterior", "by-code"

Problem = Callable[[Posterior, int], str | None]
"""Says what is wrong with sums over so many examples; None if nothing is."""


@dataclass(frozen=True)
class Head:
    """The last layer of a network, as its manifest describes it.

    Attributes:
        features: The number F of features that it takes.
        classes: The number C of classes.
        weights: (F + 1, C) its weights at the posterior's mean, biases in the last row.
        stages: How many channels the stages before it take.
    """

    features: int
    classes: int
    weights: Array
    stages: Sequence[int]

    @classmethod
    def of(cls, posterior: Posterior, manifest: Manifest | None) -> Head:
        """Return the last layer of a posterior's network.

        Raises:
            ConfigurationError: The last layer is no dense layer with biases, or not known.
        """
        if manifest is None:
            raise ConfigurationError("a closing needs the manifest of the network's parameters")
        values = {
            parameter.name: part
            for gaussian, vector in ((True, posterior.mean), (False, posterior.point))
            for parameter, part in zip(
                manifest.gaussian if gaussian else manifest.point,
                manifest.split(vector, gaussian=gaussian),
                strict=True,
            )
        }
        *_, kernel, bias = [values[parameter.name] for parameter in manifest]
        if kernel.ndim != 2 or bias.shape != kernel.shape[1:]:
            raise ConfigurationError(
                "a closing needs a network that ends with a dense layer with biases, and this one "
                f"ends with tensors of shapes {kernel.shape} and {bias.shape}; allowed: another "
                'model, or closing="none"'
            )
        weights = np.concatenate([kernel, bias[None]]).astype(np.float64)
        return cls(kernel.shape[0], kernel.shape[1], weights, [*manifest.stages.values()])

    @property
    def sizes(self) -> tuple[int, int, Sequence[int]]:
        """F, C and the channels of stages."""
        return self.features, self.classes, self.stages


def check_closing(
    chain: Sequence[Closing], posterior: Posterior, manifest: Manifest | None
) -> None:
    """Refuse a closing that does not fit the network, before anybody trains.

    Raises:
        ConfigurationError: Naming what does not fit.
    """
    if not asked(chain, {}):
        return
    head = Head.of(posterior, manifest)
    for each in chain:
        if problem := each.problem(head.features, head.classes):
            raise ConfigurationError(problem)


def close(
    method: Method,
    state: ServerState,
    clients: FlowerClients,
    manifest: Manifest | None,
    folder: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
    before: Callable[[str], None] = lambda release: None,
) -> Known | None:
    """Ask all clients for the sums of a chain of closings; return what they tell.

    The rounds of sums that a server has finished are taken from the folder, unless they are of
    another posterior, other settings or, without noise, other code. Sums travel as a posterior
    without Gaussian parameters does: checked, refused, added up in the order of partition ids, or
    masked.

    Args:
        state: Where the federation stands after the last round.
        folder: Where each round's result is kept; None: nowhere.
        say: Told a line for each round of sums, and one if earlier sums are taken anew.
        before: Told a word for what is asked in each round, before anybody is.

    Returns:
        None where the chain takes no round.

    Raises:
        RunError: Too few clients have sent usable sums.
    """
    chain, posterior = method.closing, state.posterior
    if not asked(chain, {}):
        return None
    head = Head.of(posterior, manifest)
    snapshots, code = (Snapshots(folder), code_digest()) if folder else (None, "")
    # Another posterior, or other closings, have other sums.
    whose = np.array(f"{posterior.digest()} {method.closing!r} {method.sums_noise or ''}".strip())
    noise = method.sums_noise
    from_head = any(each.moves_head for each in chain)
    known = begun(head.weights, from_head=from_head, longest=noise.longest if noise else None)
    number = 0
    if snapshots and (found := snapshots.latest()):
        of, by = (str(found[1].pop(name, "")) for name in (_OF, _CODE))
        # Under noise, to take sums anew would be another release, which costs ε.
        if of == str(whose) and (by == code or noise):
            number, known = found
        if of != str(whose) or by != code:
            other = "of other code" if of == str(whose) else "of another posterior or settings"
            what = "kept, as new ones would cost ε" if number else "taken anew"
            say(f"closing: the sums in {snapshots.folder} are {other}; they are {what}")
    while parts := asked(chain, known):
        number += 1
        size = length(parts, *head.sizes)
        problem = partial(_problem, method, known, head)
        request = _request(method, state, clients, known, size, number, problem)
        before(f"{whose} {code} {number}/{most_rounds(chain)}")
        who, total = _sums(method, request, clients, problem)
        known = {**known, SUMMED: np.sort(who)}
        if noise:
            _, root = deviations(chain, known, noise.longest, *head.sizes)
            deviation = noise.multiplier * root * math.sqrt(len(who))
            known = {**known, DEVIATION: np.array(deviation)}
        known = folded(chain, known, total, *head.sizes)
        if snapshots:
            snapshots.save(number, {**known, _OF: whose, _CODE: np.array(code)})
        numbers = {"clients": len(who), **_numbers(known)}
        shown = "  ".join(f"{name} {value:.5g}" for name, value in numbers.items())
        say(f"closing round {number}  {shown}")
    return {**known, ROUNDS_MADE: np.array(number)}


def _request(
    method: Method,
    state: ServerState,
    clients: FlowerClients,
    known: Known,
    size: int,
    number: int,
    problem: Problem,
) -> TrainingRequest:
    """Return what all clients are asked in one of the rounds, with so many sums."""
    return replace(
        training_request(method, state, range(clients.size)),
        message_type=CLOSE,
        vectors=("mean", "point"),  # features are taken at the mean
        called=f"closing round {number}",
        broadcast=told(method.closing, known),
        expected=_of_sums(np.zeros(size, np.float32)),
        problems=[lambda update: problem(update.posterior, update.num_examples)],
    )


def _of_sums(vector: npt.NDArray[Any]) -> Posterior:
    """Return sums (S,) as they travel: as the point parameters of a posterior without Gaussians."""
    nothing = np.zeros(0, np.float32)
    return Posterior(nothing, nothing, vector)


def _problem(
    method: Method, known: Known, head: Head, sums: Posterior, examples: int
) -> str | None:
    """Return what is wrong with sums over so many examples; None if nothing is."""
    return implausible(
        method.closing,
        known,
        np.asarray(sums.point, np.float64),
        head.features,
        head.classes,
        examples,
        head.stages,
        noised=method.sums_noise is not None,
    )


def _sums(
    method: Method, request: TrainingRequest, clients: FlowerClients, problem: Problem
) -> tuple[Sequence[int], Array]:
    """Return who is in the sums, and the sums: of single vectors, or of masked ones."""
    expected = request.expected or request.posterior
    size = expected.point.size
    if secure_sums := method.exchange.secure_sums:
        shares = dict.fromkeys(request.partition_ids, 1.0 / clients.size)
        most = greatest(max(clients.num_examples.values(), default=clients.most_examples))
        wanted = WantedSum(
            secure_sums,
            method.pooling,
            expected,
            shares,
            float(clients.size),
            [exponent_for(most)],
            size,
        )
        found = add_up(clients, request, wanted)
        total = decoded(found.total, exponent_for(most)) * clients.size
        counts = [clients.num_examples.get(client, 0) for client in found.partition_ids]
        if wrong := all(counts) and problem(_of_sums(total), sum(counts)):
            raise RunError(
                f"{request.called}: {wrong}; only the sum of the clients' vectors is known "
                "(exchange 'masked'), not which of them has sent what"
            )
        return found.partition_ids, total
    total, who = np.zeros(size), []
    for update in clients.train(request):
        total += update.posterior.point
        who.append(update.partition_id)
    return who, total


def _numbers(known: Known) -> dict[str, float]:
    """Return what is known in single numbers."""
    return {
        name: float(value)
        for name, value in known.items()
        if np.ndim(value) == 0 and np.asarray(value).dtype.kind == "f"
    }
