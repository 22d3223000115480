"""The client's half of secure aggregation: what it answers, and what it keeps in between.

What it keeps lies in Flower's context of its node and nowhere else, and ends with the round.
"""

from __future__ import annotations

import sys
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from flwr.app import ConfigRecord, Context, Message, RecordDict

from bfl.aggregation.pooling import client_statistics
from bfl.aggregation.weightings import Weighting
from bfl.configuration import Configuration
from bfl.configuration.configuration import without_paths
from bfl.errors import ConfigurationError, ProtocolError
from bfl.federation.secure_aggregation.client import (
    ClientSecrets,
    advertise,
    confirm,
    masked,
    share,
    unmask,
)
from bfl.federation.secure_aggregation.keys import Unsigned
from bfl.federation.secure_aggregation.masking import Ring, encoded, encoded_statistics
from bfl.federation.secure_aggregation.messages import (
    Confirmations,
    Fields,
    Invitation,
    Roster,
    SecureSums,
    Survivors,
)
from bfl.federation.secure_aggregation.on_the_wire import (
    SECURE,
    MaskedTask,
    configuration_of,
    fields_in,
    masked_content,
    record_of,
    told_digest,
)
from bfl.posteriors import Posterior
from clients.node import Node
from clients.process import cached_configuration


def advertised(message: Message, context: Context) -> Message:
    """Answer an invitation with fresh keys; what was kept before is forgotten."""
    node, asked = Node.of(context), Invitation.from_fields(fields_in(message.content))
    _agreed(message, node)
    if asked.client != node.partition_id:
        raise ConfigurationError(
            f"this node has partition {node.partition_id} and is asked for keys of partition "
            f"{asked.client}"
        )
    identity = node.identity
    if isinstance(identity, Unsigned) and not node.simulated:
        _say_unsigned(context.run_id)
    state, reply = advertise(asked, identity)
    return _answer(message, context, state, reply)


@lru_cache(maxsize=16)
def _say_unsigned(run_id: int) -> None:
    """Warn once in a run, in the node's log, of keys that are not signed."""
    print(
        f"warning: run {run_id} masks updates, and this node has no clients-list: its keys are not "
        "signed, it accepts all keys, and a server that simulates clients learns its updates; see "
        "docs/secure-aggregation.md",
        file=sys.stderr,
        flush=True,
    )


def shared(message: Message, context: Context) -> Message:
    """Answer a list of clients with shares for the neighbours."""
    roster = Roster.from_fields(fields_in(message.content))
    node = Node.of(context)
    neighbourhood = _agreed(message, node).neighbourhood
    state, reply = share(_kept(context), roster, neighbourhood, node.identity)
    return _answer(message, context, state, reply)


def checked_task(
    message: Message,
    node: Node,
    configuration: Configuration,
    num_examples: int,
    weighting: Weighting | None = None,
) -> MaskedTask:
    """Return what a client is told with its task, before it trains for what it would not send.

    Args:
        num_examples: The number of its examples, as the server knows it.
        weighting: The scheme of its weight; None: the configuration's.
    """
    task = MaskedTask.from_fields(fields_in(message.content))
    task.check_weight(weighting or configuration.weighting, num_examples, node.greatest_weight)
    return task


def masked_reply(
    message: Message,
    context: Context,
    task: MaskedTask,
    configuration: Configuration,
    posterior: Posterior,
    received: Posterior,
    num_examples: int,
) -> RecordDict:
    """Return the content of a client's answer to its task: its statistics, masked.

    Args:
        task: What ``checked_task`` gives.
    """
    secure_sums = _secure_sums(configuration)
    secure_sums.value_range.check(posterior, received)
    statistics = client_statistics(configuration.pooling, posterior, task.known_weight, received)
    vector = encoded_statistics(statistics, task.exponents)
    del statistics
    return _masked(message, context, task, secure_sums, vector, num_examples)


def masked_sums(
    message: Message,
    context: Context,
    task: MaskedTask,
    configuration: Configuration,
    sums: npt.NDArray[np.float64],
    num_examples: int,
) -> RecordDict:
    """Return the content of a client's answer with sums over its data, masked.

    Args:
        task: What ``checked_task`` gives.
        sums: (S,) the sums.
    """
    vector = encoded(sums * task.known_weight, task.exponents[0])
    secure_sums = _secure_sums(configuration)
    return _masked(message, context, task, secure_sums, vector, num_examples)


def _masked(
    message: Message,
    context: Context,
    task: MaskedTask,
    secure_sums: SecureSums,
    vector: Ring,
    num_examples: int,
) -> RecordDict:
    """Return the content of an answer with a vector, to which its masks are added in place."""
    told = told_digest(message.content, task.exponents, task.known_total, without_paths)
    state = masked(_kept(context), task, vector, secure_sums.neighbourhood, told)
    context.state[SECURE] = record_of(state)
    return masked_content(vector, num_examples)


def confirmed(message: Message, context: Context) -> Message:
    """Answer the list of those who are left with what the neighbours can hold theirs against."""
    survivors = Survivors.from_fields(fields_in(message.content))
    neighbourhood = _agreed(message, Node.of(context)).neighbourhood
    state, reply = confirm(_kept(context), survivors, neighbourhood)
    return _answer(message, context, state, reply)


def unmasked(message: Message, context: Context) -> Message:
    """Answer the neighbours' confirmations with shares, and forget all that was kept."""
    heard = Confirmations.from_fields(fields_in(message.content))
    neighbourhood = _agreed(message, Node.of(context)).neighbourhood
    state = _kept(context)
    del context.state[SECURE]
    reply = unmask(state, heard, neighbourhood)
    return Message(RecordDict({SECURE: record_of(reply)}), reply_to=message)


def _agreed(message: Message, node: Node) -> SecureSums:
    text = configuration_of(message.content)
    return _secure_sums(cached_configuration(text, node.plugins_folder))


def _secure_sums(configuration: Configuration) -> SecureSums:
    secure_sums = configuration.exchange.secure_sums
    if secure_sums is None:
        raise ProtocolError(
            f"the run's exchange is '{configuration.exchange.name}', and nothing is masked"
        )
    return secure_sums


def _kept(context: Context) -> ClientSecrets:
    """Return what the client keeps in this round."""
    record = context.state.get(SECURE)
    if not isinstance(record, ConfigRecord):
        raise ProtocolError("this client has no keys of this round: its node was started anew")
    return ClientSecrets.from_fields(record)


def _answer(message: Message, context: Context, state: ClientSecrets, reply: Fields) -> Message:
    context.state[SECURE] = record_of(state)
    return Message(RecordDict({SECURE: record_of(reply)}), reply_to=message)
