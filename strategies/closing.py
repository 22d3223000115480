"""The end of a run on the server: clients' sums close the network, and nodes test it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bfl.closing import base
from bfl.closing.base import Array, Known, SumsRound, last_layer, schedule, sums_as_posterior
from bfl.federation.node_description import code_digest
from bfl.federation.state import Snapshots
from bfl.federation.wire import CLOSE, EVALUATE
from bfl.posteriors.posterior import VECTORS
from bfl.printing import doing
from strategies.flower_clients import FlowerClients
from strategies.masked import collect_masked_sums
from strategies.method import Method, RunSupport
from strategies.round import TrainingRequest
from strategies.server_state import ServerState
from strategies.updates import ClientUpdate

CLOSING = "closing"  # the folder in a run's with the sums' results so far
AT_MEAN = ("mean", "point")  # the vectors of a posterior that features at its mean need
OWNER = "of-posterior"  # in a snapshot: the posterior, the closings' settings and the code


def close(
    method: Method, state: ServerState, clients: FlowerClients, run: RunSupport
) -> Known | None:
    """Ask clients for the sums of a chain of closings; return what they tell, if any.

    The rounds of sums that a server has made are taken from the run's folder, unless they are of
    another posterior, other settings or other code.
    """
    chain, posterior = method.closing, state.posterior
    if not schedule(chain):
        return None
    sizes, head = last_layer(posterior, run.manifest)
    from_head = np.array(any(each.moves_head for each in chain))
    known: Known = {base.HEAD: head, base.FROM_HEAD: from_head}
    owner = f"{posterior.digest()} {chain!r} {code_digest()}"
    snapshots = Snapshots(Path(run.folder) / CLOSING) if run.folder else None
    if snapshots and (found := snapshots.latest()):
        if str(found[1].pop(OWNER, "")) == owner:
            known = found[1]
        else:
            run.show_sums(
                f"closing: the sums in {snapshots.folder} are of another posterior, other settings "
                "or other code; they are taken anew"
            )
    while (sums := SumsRound.next_round(chain, known, sizes)).measurements:
        number = int(known.get(base.ROUNDS_MADE, 0)) + 1
        request = SumsRequest(
            method=method,
            state=state,
            partition_ids=method.sampling.closing_clients(clients.size),
            message_type=CLOSE,
            name=f"closing round {number}",
            broadcast=sums.inputs(known),
            expected=sums_as_posterior(np.zeros(sums.size, np.float32)),
            check=sums.find_problem,
            vectors=VECTORS if any(each.compares_draws for each in sums.measurements) else AT_MEAN,
        )
        doing(f"closing round {number}")
        participants, total = sums_of_clients(request, clients)
        known = sums.fold(known, total)
        if snapshots:
            snapshots.save(number, {**known, OWNER: np.array(owner)})
        run.show_sums(f"closing round {number}: sums of {len(participants)} clients")
    return known


def measure_final_model(
    method: Method, state: ServerState, known: Known, clients: FlowerClients
) -> dict[int, dict[str, float]]:
    """Return what nodes measure of the final, closed model on test data of their own, by client."""
    described = clients.federation.descriptions
    request = SumsRequest(
        method=method,
        state=state,
        partition_ids=[p for p, each in described.items() if each.own_examples and each.code],
        message_type=EVALUATE,
        name="final evaluation",
        broadcast=known,
        expected=sums_as_posterior(np.zeros(0, np.float32)),
        check=lambda *_: None,
        vectors=VECTORS,
    )
    doing("clients test the final model on data of their own")
    messages = clients.messages(request)
    clients.usable.needed = 0  # who does not answer is warned of, and ends no run
    updates = clients.updates(request, clients.replies(request.name, messages))
    return {update.partition_id: update.metrics for update in updates}


@dataclass(frozen=True, kw_only=True)
class SumsRequest(TrainingRequest):
    """Request for sums (S,) over clients' data, with a check of them by numbers of examples."""

    of_sums: ClassVar[bool] = True
    check: Callable[[Any, int], str | None]

    def find_problem(self, update: ClientUpdate) -> str | None:
        """Return why a client's sums are of no use; None if they are."""
        return self.check(update.posterior.point, update.num_examples)


def sums_of_clients(request: SumsRequest, clients: FlowerClients) -> tuple[Sequence[int], Array]:
    """Return whose sums have come, and their total (S,); masked where the exchange masks."""
    if request.method.exchange.secure_sums:
        return collect_masked_sums(clients, request, request.check)
    replies = clients.replies(request.name, clients.messages(request))
    partition_ids, total = list[int](), np.zeros(request.expected.point.size)
    for update in clients.updates(request, replies):
        total += update.posterior.point
        partition_ids.append(update.partition_id)
    return partition_ids, total
