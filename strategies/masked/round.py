"""A round whose exchange is masked: the server pools a sum, and sees no update."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bfl.aggregation.weightings import Weighting
from bfl.configuration import Configuration
from bfl.errors import ConfigurationError
from bfl.federation.secure_aggregation.accuracy import check_accuracy
from bfl.federation.secure_aggregation.messages import SecureSums
from bfl.federation.secure_aggregation.on_the_wire import is_share
from bfl.posteriors import Manifest, Posterior
from strategies.masked.clients import add_up, pool_sums, wanted_sum
from strategies.method import Method
from strategies.request import TrainingRequest
from strategies.round import foreseen_weights, next_round, pooling_errors
from strategies.server_state import PooledRound
from strategies.updates import PooledClient

if TYPE_CHECKING:
    from strategies.flower_clients import FlowerClients


def pool_masked_round(
    request: TrainingRequest,
    secure_sums: SecureSums,
    clients: FlowerClients,
    manifest: Manifest | None,
) -> PooledRound:
    """Have the clients of a round train, and return what the sum of their statistics leads to.

    Raises:
        RunError: Too few clients have stayed, or no other round can begin with their sum.
    """
    method, state = request.method, request.state
    sizes = {client: clients.num_examples[client] for client in request.partition_ids}
    wanted = wanted_sum(secure_sums, method.pooling, method.weighting, state.posterior, sizes)
    found = add_up(clients, request, wanted)
    with pooling_errors(request):
        pooled = pool_sums(method.pooling, wanted, found, state.posterior, state.unrounded)
    unseen = [PooledClient(client, sizes[client]) for client in found.partition_ids]
    return next_round(request, pooled, unseen, {}, {}, manifest)


def check_masked(
    method: Method,
    secure_sums: SecureSums,
    posterior: Posterior,
    configuration: Configuration | None,
    clients: FlowerClients,
    selected: Mapping[int, list[int]],
) -> None:
    """Raise if clients send more than sums, too little is known, or sums would be too coarse.

    Args:
        posterior: What the first round begins with.
        configuration: What clients are sent a part of; None: they are sent none.
        selected: The clients of each round.

    Raises:
        ConfigurationError: Naming what, before anybody trains.
    """
    known = clients.num_examples
    why = f"exchange '{method.exchange.name}': the server learns sums alone, and "
    if beside := [array.name for array in method.declared(posterior)]:
        raise ConfigurationError(
            f"{why}clients are to send {', '.join(beside)} besides their posteriors; "
            "allowed: exchange='direct'"
        )
    for count in {len(each) for each in selected.values()}:
        method.exchange.check_asked(count)
    ever = sorted(set().union(*selected.values()))
    if unknown := [str(client) for client in ever if client not in known]:
        raise ConfigurationError(
            f"{why}the number of examples of partitions {', '.join(unknown)} is not known "
            "before the first round; allowed: nodes that declare own-examples, examples that "
            "the server assigns, or exchange='direct'"
        )
    sizes = {client: known[client] for client in ever}
    _check_clients_know_weights(method.weighting, configuration, sizes, why)
    found_fine: set[tuple[float, ...]] = set()
    for number, asked in sorted(selected.items()):
        weights = foreseen_weights(method.weighting, {each: known[each] for each in asked})
        shares = tuple(sorted(weights.values()))
        if shares in found_fine:
            continue
        needed = clients.options.needed(len(asked))
        try:
            check_accuracy(method.pooling, secure_sums.value_range, posterior, shares, needed)
        except ConfigurationError as error:
            where = f"round {number} would ask clients {', '.join(map(str, asked))}: "
            raise ConfigurationError(f"{where if number > 1 else ''}{error}") from error
        found_fine.add(shares)
        if method.pooling.uses_previous:  # the grid of those that follow is not known yet
            return


def _check_clients_know_weights(
    weighting: Weighting,
    configuration: Configuration | None,
    sizes: Mapping[int, int],
    why: str,
) -> None:
    """Raise if clients would find other weights than the server gives them, and send nothing.

    Args:
        configuration: What clients are sent a part of; None: they are sent none.
        sizes: How many examples each client holds that is ever asked, by partition id.

    Raises:
        ConfigurationError: Clients are sent another weighting; or the scale of a client's γ depends
            on who is weighed with it.
    """
    if configuration and _described(configuration.weighting) != _described(weighting):
        raise ConfigurationError(
            f"{why}each client checks its weight, this Strategy's weighting is "
            f"{_described(weighting)}, and that of the configuration that clients are sent is "
            f"{_described(configuration.weighting)}; allowed: the same in both"
        )
    gammas = {client: weighting.gamma_of_count(count) for client, count in sizes.items()}
    total = math.fsum(gammas.values())
    for client, weight in foreseen_weights(weighting, sizes).items():
        if not is_share(weight, gammas[client], total):
            raise ConfigurationError(
                f"{why}each client checks its weight by its own number of examples, and weighting "
                f"'{weighting.name}' gives partition {client} ({sizes[client]} examples) another "
                "one besides the others than by itself; allowed: a weighting whose numbers for a "
                "client do not depend on the others, such as train-size, or exchange='direct'"
            )


def _described(weighting: Weighting) -> str:
    settings = weighting.model_dump(by_alias=True).items()
    return ", ".join([f"'{weighting.name}'", *(f"{key}={value!r}" for key, value in settings)])
