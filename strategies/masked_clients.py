"""Clients whose sums alone become known: one round of secure aggregation over Flower's messages."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Set
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from bfl.configuration.configuration import without_paths
from bfl.errors import ProtocolError, RunError, TooFewClientsError, UnusableClientsError
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
from strategies.federation import Federation
from strategies.messaging import exchange
from strategies.pool_sums import ClientsSum, WantedSum

Told = Callable[[int, str], None]
"""Told the partition and the reason when a client has failed or is refused."""


UNSIGNED = (
    "its keys of masked rounds are not signed, as its node has no clients-list: a server that "
    "played clients of its own would learn its update (docs/secure-aggregation.md)"
)


class MaskedAttempt:
    """One attempt at a round of secure aggregation, with keys and masks of its own.

    Args:
        grid: Flower's grid.
        federation: The nodes.
        server_round: The round.
        wanted: What the clients are to add up.
        tasks: The content of the message that asks each client to train, by partition id.
        configuration: Gives the run's configuration for a client, which every message carries.
        silence: Seconds without any reply after which a stage goes on without the rest.
        warn: Told what goes wrong with a client.
        message_type: The type of the message with a client's task.
    """

    def __init__(
        self,
        grid: Grid,
        federation: Federation,
        server_round: int,
        wanted: WantedSum,
        tasks: Mapping[int, RecordDict],
        *,
        configuration: Callable[[int], str],
        silence: float,
        warn: Told,
        message_type: str = TRAIN,
    ) -> None:
        self._grid = grid
        self._federation = federation
        self._group = str(server_round)
        self._wanted = wanted
        self._tasks = tasks
        self._configuration = configuration
        self._silence = silence
        self._warn = warn
        self._message_type = message_type
        # The word makes each attempt's label another one, also that of a round made again.
        label = f"round {server_round}, {secrets.token_hex(8)}"
        # It is the same of all contents; where nobody is left, the first stage says so.
        alike = (wanted.exponents, wanted.total, without_paths)
        told = next((told_digest(content, *alike) for content in tasks.values()), b"")
        near = wanted.secure_sums.neighbourhood
        self._sum = SecureSum(label, tasks, wanted.size, near, told)

    def run(self, needed: int) -> ClientsSum:
        """Return the sum of the clients that have stayed.

        Args:
            needed: How many vectors there must be in it.

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
        descriptions, unsigned = self._federation.descriptions, self._sum.unsigned
        if not unsigned or not self._federation.noise_anew or descriptions is None:
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
        contents = {c: stage_content(m, self._configuration(c)) for c, m in messages.items()}
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
            self._message_type,
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
        nodes = self._federation.nodes
        heard = set()
        messages = [
            Message(content, nodes[client], message_type, group_id=self._group)
            for client, content in contents.items()
        ]
        for reply in exchange(self._grid, messages, self._silence):
            client = self._federation.partition_of(reply.metadata.src_node_id)
            heard.add(client)
            if reply.has_error():
                self._warn(client, f"failed: {reply.error.reason}")
                continue
            try:
                take(client, reply.content)
            except (ProtocolError, ValueError) as error:
                self._warn(client, f"refused: {error}")
        for client in sorted(contents.keys() - heard):
            self._warn(client, f"failed: no reply for {self._silence:g} s (client-timeout)")


def with_attempts(
    attempt: Callable[[Set[int]], ClientsSum], retries: int, called: str, warn: Told
) -> ClientsSum:
    """Return what an attempt at a round gives; it is made again, with fresh masks, if it fails.

    Args:
        attempt: Makes one, without some clients.
        retries: How often it is made again.
        called: The round, in messages.
        warn: Told which clients are left out of the attempts that follow, and why.

    Raises:
        RunError: All have failed.
    """
    left_out: set[int] = set()
    for left in reversed(range(retries + 1)):
        try:
            return attempt(left_out)
        except (TooFewClientsError, UnusableClientsError) as error:
            if not left:
                raise RunError(f"{called}: {error}; nothing was unmasked") from error
            if isinstance(error, UnusableClientsError):
                left_out |= error.reasons.keys()
                for client, reason in sorted(error.reasons.items()):
                    warn(client, f"left out of this round: {reason}")
    raise AssertionError("unreachable")
