"""ServerOption of a round whose exchange is masked: the server pools a sum, and sees no update."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bfl.aggregation.pooling import Pooled
from bfl.aggregation.weightings import Weighting
from bfl.configuration import Configuration
from bfl.errors import ConfigurationError
from bfl.federation.secure_aggregation.accuracy import check_accuracy
from bfl.federation.secure_aggregation.messages import SecureSums
from bfl.federation.secure_aggregation.on_the_wire import is_share
from strategies.masked.clients import add_up, pool_sums, wanted_sum
from strategies.options import Planned, ServerOption
from strategies.pool_updates import PooledClient, RoundStatistics, assigned, foreseen_weights

if TYPE_CHECKING:
    from strategies.flower_clients import FlowerClients
    from strategies.round import OpenRound, Train


class MaskedExchange(ServerOption):
    """Messages of their own in place of updates; what they add up to is pooled."""

    def __init__(self, sums: SecureSums) -> None:
        self._sums = sums

    def check(self, planned: Planned) -> None:
        """Raise if clients send more than sums, too little is known, or sums would be too coarse.

        Raises:
            ConfigurationError: Naming what.
        """
        method, known = planned.method, planned.clients.num_examples
        asked = planned.asked(planned.rounds)
        said = f"exchange '{method.exchange.name}': the server learns sums alone, and "
        if beside := [array.name for array in method.declared(planned.posterior)]:
            raise ConfigurationError(
                f"{said}clients are to send {', '.join(beside)} besides their posteriors; "
                "allowed: exchange='direct'"
            )
        for count in {len(clients) for clients in asked.values()}:
            method.exchange.check_asked(count)
        ever = sorted(set().union(*asked.values()))
        if unknown := [str(client) for client in ever if client not in known]:
            raise ConfigurationError(
                f"{said}the number of examples of partitions {', '.join(unknown)} is not known "
                "before the first round; allowed: nodes that declare own-examples, examples that "
                "the server assigns, or exchange='direct'"
            )
        sizes = {client: known[client] for client in ever}
        _check_clients_know_weights(method.weighting, planned.configuration, sizes, said)
        self._check_accuracy(planned, asked)

    def _check_accuracy(self, planned: Planned, asked: Mapping[int, list[int]]) -> None:
        """Raise if sums would be too coarse in a round of which that can be known before the first.

        Weights are another round's where clients are sampled, and so is what rounding does to them.

        Raises:
            ConfigurationError: Naming the round, if it is not the first.
        """
        method, known = planned.method, planned.clients.num_examples
        found_fine: set[tuple[float, ...]] = set()
        for number, clients in sorted(asked.items()):
            weights = foreseen_weights(method.weighting, {each: known[each] for each in clients})
            shares = tuple(sorted(weights.values()))
            if shares in found_fine:
                continue
            needed = planned.clients.retry_policy.needed(len(clients))
            try:
                check_accuracy(
                    method.pooling, self._sums.value_range, planned.posterior, shares, needed
                )
            except ConfigurationError as error:
                where = f"round {number} would ask clients {', '.join(map(str, clients))}: "
                raise ConfigurationError(f"{where if number > 1 else ''}{error}") from error
            found_fine.add(shares)
            if method.pooling.uses_previous:  # the grid of those that follow is not known yet
                return

    def begin(self, opened: OpenRound) -> None:
        """Have sums collected in place of updates."""
        opened.collect = self._collect

    def _collect(
        self, opened: OpenRound, clients: FlowerClients, train: Train
    ) -> tuple[Pooled, RoundStatistics]:
        """Have the clients of a round train, and pool the sum of their statistics."""
        method, request = opened.method, opened.request
        rule, previous = method.pooling, request.posterior
        sizes = assigned(clients.num_examples, request.partition_ids)
        wanted = wanted_sum(self._sums, rule, method.weighting, previous, sizes)
        found = add_up(clients, request, wanted)
        unseen = tuple(PooledClient(i, sizes[i]) for i in found.partition_ids)
        pooled = pool_sums(rule, wanted, found, previous, opened.state.unrounded)
        return pooled, RoundStatistics(len(request.partition_ids), 0, unseen)


def _check_clients_know_weights(
    weighting: Weighting,
    configuration: Configuration | None,
    sizes: Mapping[int, int],
    said: str,
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
            f"{said}each client checks its weight, this Strategy's weighting is "
            f"{_described(weighting)}, and that of the configuration that clients are sent is "
            f"{_described(configuration.weighting)}; allowed: the same in both"
        )
    gammas = {client: weighting.gamma_of_count(count) for client, count in sizes.items()}
    total = math.fsum(gammas.values())
    for client, weight in foreseen_weights(weighting, sizes).items():
        if not is_share(weight, gammas[client], total):
            raise ConfigurationError(
                f"{said}each client checks its weight by its own number of examples, and weighting "
                f"'{weighting.name}' gives partition {client} ({sizes[client]} examples) another "
                "one besides the others than by itself; allowed: a weighting whose numbers for a "
                "client do not depend on the others, such as train-size, or exchange='direct'"
            )


def _described(weighting: Weighting) -> str:
    settings = weighting.model_dump(by_alias=True).items()
    return ", ".join([f"'{weighting.name}'", *(f"{key}={value!r}" for key, value in settings)])
