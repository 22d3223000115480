"""Clients whose sums alone become known: one round of secure aggregation over Flower's messages."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Set
from typing import TYPE_CHECKING, Any

from flwr.app import RecordDict

from bfl.configuration.configuration import without_paths
from bfl.errors import (
    ConfigurationError,
    ProtocolError,
    RunError,
    TooFewClientsError,
    UnusableClientsError,
)
from bfl.federation.secure_aggregation.messages import (
    Confirmations,
    Delivery,
    Fields,
    PublicKeys,
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
from strategies.masked.sums import ClientsSum, WantedSum
from strategies.messaging import exchange

if TYPE_CHECKING:
    from strategies.flower_clients import FlowerClients
    from strategies.round import TrainingRequest

UNSIGNED = (
    "its keys of masked rounds are not signed, as its node has no clients-list: a server that "
    "played clients of its own would learn its update (docs/secure-aggregation.md)"
)


class MaskedAttempt:
    """One attempt at a round of secure aggregation, with keys and masks of its own.

    Args:
        clients: The clients over Flower.
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
        clients.refresh(request.called)
        self._clients = clients
        self._request = request
        self._wanted = wanted
        self._warn = clients.warning(request.called)
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
        clients, silence = self._clients, self._clients.retry_policy.silence
        heard = set()
        messages = [
            clients.message(client, content, message_type, self._request.server_round)
            for client, content in contents.items()
        ]
        for reply in exchange(clients.grid, messages, silence):
            client = clients.federation.partition_of(reply.metadata.src_node_id)
            heard.add(client)
            if reply.has_error():
                self._warn(client, f"failed: {reply.error.reason}")
                continue
            try:
                take(client, reply.content)
            except (ProtocolError, ValueError) as error:
                self._warn(client, f"refused: {error}")
        for client in sorted(contents.keys() - heard):
            self._warn(client, f"failed: no reply for {silence:g} s (client-timeout)")


def add_up(clients: FlowerClients, request: TrainingRequest, wanted: WantedSum) -> ClientsSum:
    """Have clients train, and return the sum of their statistics, which is all that is known.

    An attempt that fails is made again, with fresh masks.

    Raises:
        RunError: Fewer clients than ``min-clients`` have stayed, or than it takes to take masks
            off, in every attempt; or rounding could carry their pool too far, and nobody was
            asked; or the engine has died.
    """
    retry_policy, warn = clients.retry_policy, clients.warning(request.called)
    needed = retry_policy.needed(len(request.partition_ids))
    try:
        wanted.check(needed)
    except ConfigurationError as error:
        raise RunError(
            f"{request.called} was not begun, and no client was asked: {error}; the range is "
            "that of the whole run: begin another one with these keys changed"
        ) from error
    left_out: set[int] = set()
    for left in reversed(range(retry_policy.retries + 1)):
        try:
            return MaskedAttempt(clients, request, wanted, left_out).run(needed)
        except (TooFewClientsError, UnusableClientsError) as error:
            if not left:
                raise RunError(f"{request.called}: {error}; nothing was unmasked") from error
            if isinstance(error, UnusableClientsError):
                left_out |= error.reasons.keys()
                for client, reason in sorted(error.reasons.items()):
                    warn(client, f"left out of this round: {reason}")
    raise AssertionError("unreachable")
