"""The closing round on the server: clients are asked for sums, which close the final network."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from bfl.closing import base
from bfl.closing.base import Array, Known, Sizes, SumsRound, schedule
from bfl.errors import ConfigurationError, RunError
from bfl.federation.node_description import code_digest
from bfl.federation.secure_aggregation.masking import decoded, exponent_for
from bfl.federation.state import Snapshots
from bfl.federation.wire import CLOSE
from bfl.posteriors import Manifest, Posterior
from bfl.posteriors.posterior import VECTORS
from strategies.flower_clients import FlowerClients
from strategies.masked import WantedSum, add_up
from strategies.method import Method
from strategies.round import TrainingRequest
from strategies.server_state import ServerState
from strategies.updates import ClientUpdate

CLOSING = "closing"  # the folder in a run's with the sums' results so far
AT_MEAN = ("mean", "point")  # the vectors of a posterior that features at its mean need
OWNER, CODE = "of-posterior", "by-code"  # in a snapshot: posterior and settings, and the code


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

    The rounds of sums that a server has made are taken from the folder, unless they are of another
    posterior, other settings or, without noise, other code. Sums travel as a posterior without
    Gaussian parameters does: checked, refused, added up in the order of partition ids, or masked.

    Args:
        state: Where the federation stands after the last round.
        folder: Where each round's result is kept; None: nowhere.
        say: Gets a line for each round of sums, and one if earlier sums are taken anew.
        before: Gets a word for what is asked in each round, before anybody is.

    Returns:
        None where the chain takes no round.

    Raises:
        RunError: Too few clients have sent usable sums.
    """
    chain, posterior, noise = method.closing, state.posterior, method.sums_noise
    if not schedule(chain):
        return None
    sizes, head = last_layer(posterior, manifest)
    from_head = any(each.moves_head for each in chain)
    known: Known = {base.HEAD: head, base.FROM_HEAD: np.array(from_head)}
    if noise:
        known = {**known, base.LONGEST: np.array(noise.longest)}
    # Another posterior, or other closings, have other sums.
    owner = f"{posterior.digest()} {chain!r} {noise or ''}".strip()
    snapshots, code = (Snapshots(folder), code_digest()) if folder else (None, "")
    if snapshots and (found := snapshots.latest()):
        same_owner = str(found[1].pop(OWNER, "")) == owner
        same_code = str(found[1].pop(CODE, "")) == code
        kept = same_owner and (same_code or noise)
        known = found[1] if kept else known
        if not (same_owner and same_code):
            other = "code" if same_owner else "posterior or settings"
            what = "kept, as new ones would cost ε" if kept else "taken anew"
            say(f"closing: the sums in {snapshots.folder} are of other {other}; they are {what}")
    while (following := SumsRound.following(chain, known, sizes)).measurements:
        number = int(known.get(base.ROUNDS_MADE, 0)) + 1
        deviations, root = following.deviations(noise.longest if noise else base.FEATURE_BOUND)
        compares = any(each.compares_draws for each in following.measurements)
        request = SumsRequest(
            method=method,
            state=state,
            partition_ids=range(clients.size),
            message_type=CLOSE,
            name=f"closing round {number}",
            broadcast=following.inputs(known),
            expected=as_posterior(np.zeros(len(deviations), np.float32)),
            check=partial(following.find_problem, noised=noise is not None),
            vectors=VECTORS if compares else AT_MEAN,
        )
        before(f"{owner} {code} {number}/{len(schedule(chain))}")
        participants, total = sums_of_clients(request, clients)
        if noise:
            deviation = noise.multiplier * root * math.sqrt(len(participants))
            known = {**known, base.DEVIATION: np.array(deviation)}
        known = following.fold(known, total)
        if snapshots:
            snapshots.save(number, {**known, OWNER: np.array(owner), CODE: np.array(code)})
        say(f"closing round {number}: sums of {len(participants)} clients")
    return known


def last_layer(posterior: Posterior, manifest: Manifest | None) -> tuple[Sizes, Array]:
    """Return the sizes of a network's last layer, and its weights (F + 1, C), biases last.

    Raises:
        ConfigurationError: The last layer is no dense layer with biases, or not known.
    """
    if manifest is None:
        raise ConfigurationError("a closing needs the manifest of the network's parameters")
    parts = {
        True: iter(manifest.split(posterior.mean, gaussian=True)),
        False: iter(manifest.split(posterior.point, gaussian=False)),
    }
    *_, kernel, bias = [next(parts[parameter.gaussian]) for parameter in manifest]
    if kernel.ndim != 2 or bias.shape != kernel.shape[1:]:
        raise ConfigurationError(
            "a closing needs a network that ends with a dense layer with biases, and this one "
            f"ends with tensors of shapes {kernel.shape} and {bias.shape}; allowed: another "
            'model, or closing="none"'
        )
    weights = np.concatenate([kernel, bias[None]]).astype(np.float64)
    return Sizes(*kernel.shape, [*manifest.stages.values()]), weights


def as_posterior(vector: npt.NDArray[Any]) -> Posterior:
    """Return sums (S,) as they travel: as the point parameters of a posterior without Gaussians."""
    nothing = np.zeros(0, np.float32)
    return Posterior(nothing, nothing, vector)


@dataclass(frozen=True, kw_only=True)
class SumsRequest(TrainingRequest):
    """Request for sums over clients' data.

    Attributes:
        check: Returns what is wrong with sums (S,) over so many examples; None: nothing is.
    """

    of_sums: ClassVar[bool] = True

    check: Callable[[npt.NDArray[Any], int], str | None]

    def find_problem(self, update: ClientUpdate) -> str | None:
        """Return why a client's sums are of no use; None if they are."""
        return self.check(update.posterior.point, update.num_examples)


def sums_of_clients(request: SumsRequest, clients: FlowerClients) -> tuple[Sequence[int], Array]:
    """Return whose sums have come, and their total (S,); masked where the exchange masks.

    Raises:
        RunError: Too few clients have sent usable sums, or their total cannot be.
    """
    secure_sums, size = request.method.exchange.secure_sums, request.expected.point.size
    if not secure_sums:
        replies = clients.replies(request.name, clients.messages(request))
        participants, total = list[int](), np.zeros(size)
        for update in clients.updates(request, replies):
            total += update.posterior.point
            participants.append(update.partition_id)
        return participants, total
    most = base.greatest(max(clients.num_examples.values(), default=clients.options.max_examples))
    wanted = WantedSum(
        neighbourhood=secure_sums.neighbourhood,
        weights=dict.fromkeys(request.partition_ids, 1.0 / clients.size),
        total=float(clients.size),
        exponents=[exponent_for(most)],
        size=size,
    )
    masked_participants, added = add_up(clients, request, wanted)
    total = decoded(added, exponent_for(most)) * clients.size
    counts = [clients.num_examples.get(client, 0) for client in masked_participants]
    if wrong := all(counts) and request.check(total, sum(counts)):
        raise RunError(
            f"{request.name}: {wrong}; only the sum of the clients' vectors is known "
            "(exchange 'masked'), not which of them has sent what"
        )
    return masked_participants, total
