"""Clients whose sums alone become known: one round of secure aggregation over Flower's messages."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flwr.app import RecordDict

from bfl.aggregation.pooling import Pooled, PoolingRule, pooled_statistics
from bfl.aggregation.precision_spread import DISTANCE, SPREAD
from bfl.aggregation.weightings import Weighting
from bfl.configuration.configuration import without_paths
from bfl.errors import (
    ConfigurationError,
    PosteriorError,
    ProtocolError,
    RunError,
    TooFewClientsError,
    UnusableClientsError,
)
from bfl.federation.client_metrics import NUM_EXAMPLES
from bfl.federation.secure_aggregation.accuracy import agreed_exponents, check_accuracy
from bfl.federation.secure_aggregation.masking import Ring, decoded_statistics
from bfl.federation.secure_aggregation.messages import (
    Confirmations,
    Delivery,
    Fields,
    PublicKeys,
    SecureSums,
    Shares,
    Unmasking,
)
from bfl.federation.secure_aggregation.on_the_wire import (
    ADVERTISE_KEYS,
    CONFIRM,
    SECURE,
    SHARE_KEYS,
    UNMASK,
    MaskedTask,
    fields_in,
    masked_vector,
    record_of,
    stage_content,
    told_digest,
)
from bfl.federation.secure_aggregation.server import SecureSum
from bfl.federation.wire import TRAIN
from bfl.posteriors import Posterior
from strategies.flower_clients import FAILED, REFUSED, STOPPED_ANSWERING, FlowerClients
from strategies.messaging import UsableReplies, exchange
from strategies.plausibility import implausible_pool
from strategies.round import foreseen_weights

if TYPE_CHECKING:
    from strategies.method import Method
    from strategies.request import TrainingRequest


UNSIGNED = (
    "its keys of masked rounds are not signed, as its node has no clients-list: a server that "
    "played clients of its own would learn its update (docs/secure-aggregation.md)"
)


class MaskedAttempt:
    """One attempt at a round of secure aggregation, with keys and masks of its own.

    Args:
        request: What those of the round are asked.
        wanted: What they are to add up.
        left_out: Clients of the round that are not asked.
    """

    def __init__(
        self,
        clients: FlowerClients,
        request: TrainingRequest,
        wanted: WantedSum,
        left_out: Set[int],
    ) -> None:
        clients.refresh(request.name)
        self._left_out = clients.usable.left_out
        self._clients = clients
        self._request = request
        self._wanted = wanted
        self._warn = clients.warning(request.name)
        contents = clients.contents(request)
        self._tasks = {each: contents[each] for each in contents if each not in left_out}
        # The word makes each attempt's label another one, also that of a round made again.
        label = f"round {request.server_round}, {secrets.token_hex(8)}"
        # It is the same of all contents; where nobody is left, the first stage says so.
        alike = (wanted.exponents, wanted.total, without_paths)
        told = next((told_digest(content, *alike) for content in self._tasks.values()), b"")
        near = wanted.secure_sums.neighbourhood
        self._sum = SecureSum(label, self._tasks, wanted.size, near, told)

    def run(self, needed: int) -> ClientsSum:
        """Return the sum of the clients that have stayed.

        Raises:
            TooFewClientsError: There are fewer, or too few clients to take masks off.
            UnusableClientsError: With some clients the attempt cannot end.
            RunError: The engine has died.
        """
        total = self._sum
        self._stage(ADVERTISE_KEYS, total.invitations(), PublicKeys, total.take_keys)
        self._say_who_signs_nothing()
        self._stage(SHARE_KEYS, total.rosters(), Shares, total.take_shares)
        self._train(total.deliveries())
        if len(total.survivors) < needed:
            raise TooFewClientsError(
                f"{len(total.survivors)} of {len(self._tasks)} clients have sent a usable vector, "
                f"and min-clients asks for {needed}"
            )
        self._stage(CONFIRM, total.asked_to_confirm(), Confirmations, total.take_confirmations)
        self._stage(UNMASK, total.asked_to_unmask(), Unmasking, total.take_unmasking)
        return ClientsSum(total.survivors, total.total())

    def _say_who_signs_nothing(self) -> None:
        """Tell once in a run on SuperNodes which clients' keys are not signed."""
        federation, unsigned = self._clients.federation, self._sum.unsigned
        descriptions = federation.descriptions
        if not unsigned or not federation.noise_anew or descriptions is None:
            return
        if descriptions.take_note(UNSIGNED):
            others = ", ".join(map(str, unsigned[1:]))
            more = f"; nor are those of clients {others}" if others else ""
            self._warn(unsigned[0], f"{UNSIGNED}{more}")

    def _stage(
        self,
        kind: str,
        messages: Mapping[int, Fields],
        answer: type[Any],
        take: Callable[[int, Any], None],
    ) -> None:
        text = self._clients.configuration_text
        contents = {c: stage_content(m, text(c)) for c, m in messages.items()}
        self._ask(
            f"{TRAIN}.{kind}",
            contents,
            lambda client, content: take(client, answer.from_fields(fields_in(content))),
        )

    def _train(self, deliveries: Mapping[int, Delivery]) -> None:
        wanted = self._wanted
        contents = {}
        for client, delivery in deliveries.items():
            weight, exponents = wanted.weights[client], list(wanted.exponents)
            task = MaskedTask.of(delivery, weight, wanted.total, exponents)
            contents[client] = RecordDict({**self._tasks[client], SECURE: record_of(task)})
        self._ask(
            self._request.message_type,
            contents,
            lambda client, content: self._sum.add_masked(client, masked_vector(content)),
        )

    def _ask(
        self,
        message_type: str,
        contents: Mapping[int, RecordDict],
        take: Callable[[int, RecordDict], None],
    ) -> None:
        """Send each client its message and take the answers; who gives none has dropped out."""
        clients, silence = self._clients, self._clients.silence
        heard = set()
        messages = [
            clients.message(client, content, message_type, self._request.server_round)
            for client, content in contents.items()
        ]
        for reply in exchange(clients.grid, messages, silence):
            client = clients.federation.partition_of(reply.metadata.src_node_id)
            heard.add(client)
            if reply.has_error():
                self._left_out[client] = FAILED
                self._warn(client, f"failed: {reply.error.reason}")
                continue
            try:
                take(client, reply.content)
            except (ProtocolError, ValueError) as error:
                self._left_out[client] = REFUSED
                self._warn(client, f"refused: {error}")
        for client in sorted(contents.keys() - heard):
            self._left_out[client] = STOPPED_ANSWERING
            self._warn(client, f"failed: no reply for {silence:g} s (client-timeout)")


def add_up(clients: FlowerClients, request: TrainingRequest, wanted: WantedSum) -> ClientsSum:
    """Have clients train, and return the sum of their statistics, which is all that is known.

    An attempt that fails is made again, with fresh masks.

    Raises:
        RunError: Fewer clients than ``min-clients`` have stayed, or than it takes to take masks
            off, in every attempt; or rounding could carry their pool too far, and nobody was
            asked; or the engine has died.
    """
    options, warn = clients.options, clients.warning(request.name)
    needed = options.needed(len(request.partition_ids))
    clients.usable = UsableReplies(needed)
    try:
        wanted.check(needed)
    except ConfigurationError as error:
        raise RunError(
            f"{request.name} was not begun, and no client was asked: {error}; the range is "
            "that of the whole run: begin another one with these keys changed"
        ) from error
    left_out: set[int] = set()
    for left in reversed(range(options.round_retries + 1)):
        try:
            return MaskedAttempt(clients, request, wanted, left_out).run(needed)
        except (TooFewClientsError, UnusableClientsError) as error:
            if not left:
                raise RunError(f"{request.name}: {error}; nothing was unmasked") from error
            if isinstance(error, UnusableClientsError):
                left_out |= error.reasons.keys()
                for client, reason in sorted(error.reasons.items()):
                    clients.usable.left_out[client] = REFUSED
                    warn(client, f"left out of this round: {reason}")
    raise AssertionError("unreachable")


OF_UPDATES = ("effective-clients", "largest-weight")
"""Numbers of a round's record about its clients, where their updates are seen."""

HIDDEN = "hidden"
"""Value of these numbers where the updates are not seen."""


@dataclass(frozen=True)
class WantedSum:
    """Sum that the clients of a round are asked for.

    Attributes:
        total: The sum of their γ, by which a client knows its weight from its own.
        exponents: The exponents of the statistics and, last, of the point parameters.
        size: The number of elements of a client's vector.
    """

    secure_sums: SecureSums
    rule: PoolingRule
    previous: Posterior
    weights: Mapping[int, float]
    total: float
    exponents: Sequence[int]
    size: int

    def check(self, fewest: int) -> None:
        """Raise if rounding could carry the pooled posterior further than is promised.

        The grid follows from the previous posterior, which is another one in each round.

        Raises:
            ConfigurationError: Saying how far, and which keys make the range smaller.
        """
        allowed, weights = self.secure_sums.value_range, list(self.weights.values())
        check_accuracy(self.rule, allowed, self.previous, weights, fewest)


@dataclass(frozen=True)
class ClientsSum:
    """Sum that clients have made.

    Attributes:
        partition_ids: Who is in the sum, sorted.
    """

    partition_ids: Sequence[int]
    total: Ring


def wanted_sum(
    secure_sums: SecureSums,
    rule: PoolingRule,
    weighting: Weighting,
    previous: Posterior,
    num_examples: Mapping[int, int],
) -> WantedSum:
    """Return what the clients of a round are to add up.

    Args:
        weighting: A scheme that goes by ``counts_only``.
        num_examples: What each client that is asked holds, by partition id.
    """
    weights = foreseen_weights(weighting, num_examples)
    exponents = agreed_exponents(rule, secure_sums.value_range, previous, list(weights.values()))
    size = rule.statistics * previous.size + previous.point.size
    total = math.fsum(weighting.gamma_of_count(count) for count in num_examples.values())
    return WantedSum(secure_sums, rule, previous, weights, total, exponents, size)


def hidden_metrics(method: Method, private: bool = False) -> dict[str, str]:
    """Return what of a round's record is hidden, as the record says it.

    Args:
        private: Whether nothing that clients have may be told of them but what noise has hidden.
    """
    own = (NUM_EXAMPLES,) if private else ()
    unseen = OF_UPDATES if method.exchange.secure_sums else ()
    compared = (SPREAD, DISTANCE) if unseen and method.pooling.by_precision else ()
    return dict.fromkeys((*own, *unseen, *compared), HIDDEN)


def pool_sums(
    rule: PoolingRule,
    wanted: WantedSum,
    found: ClientsSum,
    previous: Posterior,
    unrounded: Posterior | None = None,
) -> Pooled:
    """Return the pooled posterior of what clients have added up, as pooling one by one gives it.

    Args:
        unrounded: The same as it was pooled, in float64, for a rule that ``keeps_unrounded``.

    Raises:
        PosteriorError: It is no posterior: a client has sent what is no statistics, and which one
            cannot be known.
    """
    weights = [wanted.weights[client] for client in found.partition_ids]
    sums = decoded_statistics(found.total, wanted.exponents, previous.size, previous.point.size)
    try:
        pooled = pooled_statistics(rule, sums, weights, previous, unrounded)
        if problem := implausible_pool(pooled.posterior, previous):
            raise PosteriorError(problem)
        return pooled
    except PosteriorError as error:
        raise PosteriorError(
            f"{error}; only the sum of the clients' statistics is known (exchange 'masked'), not "
            "which of them has sent what"
        ) from error
