"""The client's half of secure aggregation: what it answers, and what it keeps in between.

What it keeps lies in Flower's context of its node and nowhere else, and ends with the round.
"""

from __future__ import annotations

import sys
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from flwr.app import ConfigRecord, Context, Message, RecordDict

from bfl.aggregation.pooling.base import client_statistics
from bfl.aggregation.weightings import Weighting
from bfl.configuration import Configuration
from bfl.configuration.configuration import without_paths
from bfl.errors import ConfigurationError, ProtocolError
from bfl.federation.secure_aggregation import client as protocol
from bfl.federation.secure_aggregation import masking, messages
from bfl.federation.secure_aggregation.keys import Unsigned
from bfl.federation.wire import TrainTask
from bfl.posteriors import Posterior
from clients.examples import PreparedClient
from clients.node import Node, cached_configuration
from clients.round import read_posterior, train_update


def advertise_keys(message: Message, context: Context) -> Message:
    """Answer an invitation with fresh keys; what was kept before is forgotten."""
    node = _read_node(message, context)
    invitation = messages.Invitation.from_content(message.content)
    if invitation.client != node.partition_id:
        raise ConfigurationError(
            f"this node has partition {node.partition_id} and is asked for keys of partition "
            f"{invitation.client}"
        )
    if isinstance(node.identity, Unsigned) and not node.simulated:
        _warn_of_unsigned_keys(context.run_id)
    return _answer(message, context, *protocol.advertise(invitation, node.identity))


@lru_cache(maxsize=16)
def _warn_of_unsigned_keys(run_id: int) -> None:
    """Warn once in a run, in the node's log."""
    print(
        f"warning: run {run_id} masks updates, and this node has no clients-list: its keys are not "
        "signed, it accepts all keys, and a server that simulates clients learns its updates; see "
        "docs/secure-aggregation.md",
        file=sys.stderr,
        flush=True,
    )


def share_keys(message: Message, context: Context) -> Message:
    """Answer a list of clients with shares for the neighbours."""
    node = _read_node(message, context)
    roster = messages.Roster.from_content(message.content)
    answer = protocol.share(_secrets(context), roster, node.identity)
    return _answer(message, context, *answer)


def train_masked_round(
    message: Message, context: Context, task: TrainTask, client: PreparedClient
) -> Message:
    """Return a client's reply in a round whose updates are masked: statistics of its update."""
    configuration, count = client.configuration, client.known_examples
    # Read first: a client that refuses a masked task must not have trained, or kept a state.
    masked_task = read_task(message, client.node, configuration.weighting, count)
    update, *_ = train_update(message, context, task, client)
    received = read_posterior(message, configuration)
    content = mask_update(message, context, masked_task, configuration, update, received, count)
    return Message(content, reply_to=message)


def read_task(
    message: Message, node: Node, weighting: Weighting, num_examples: int
) -> messages.MaskedTask:
    """Return the masked part of a task, before the client trains for what it would not send.

    ``num_examples`` is the number of its examples as the server knows it.
    """
    task = messages.MaskedTask.from_content(message.content)
    task.check_weight(weighting, num_examples, node.greatest_weight)
    return task


def mask_update(
    message: Message,
    context: Context,
    task: messages.MaskedTask,
    configuration: Configuration,
    posterior: Posterior,
    received: Posterior,
    num_examples: int,
) -> RecordDict:
    """Return the content of a client's reply to what ``read_task`` gives: masked statistics."""
    masking.check_range(posterior, received)
    # No name keeps the statistics, which are as large as the vector.
    vector = masking.encode_statistics(
        client_statistics(configuration.pooling, posterior, task.known_weight, received),
        task.exponents,
    )
    return _mask(message, context, task, vector, num_examples)


def mask_sums(
    message: Message,
    context: Context,
    task: messages.MaskedTask,
    sums: npt.NDArray[np.float64],
    num_examples: int,
) -> RecordDict:
    """Return the content of a client's reply with sums (S,) over its data, masked."""
    vector = masking.encode(sums * task.known_weight, task.exponents[0])
    return _mask(message, context, task, vector, num_examples)


def _mask(
    message: Message,
    context: Context,
    task: messages.MaskedTask,
    vector: masking.Ring,
    num_examples: int,
) -> RecordDict:
    """Return the content of a reply with a vector, to which its masks are added in place."""
    digest = messages.task_digest(message.content, task.exponents, task.known_total, without_paths)
    state = protocol.mask_vector(_secrets(context), task, vector, digest)
    context.state[messages.SECURE] = state.to_record()
    return messages.write_masked_vector(vector, num_examples)


def confirm(message: Message, context: Context) -> Message:
    """Answer the list of those who are left with what the neighbours can hold theirs against."""
    _read_node(message, context)
    survivors = messages.Survivors.from_content(message.content)
    return _answer(message, context, *protocol.confirm(_secrets(context), survivors))


def unmask(message: Message, context: Context) -> Message:
    """Answer the neighbours' confirmations with shares, and forget all that was kept."""
    _read_node(message, context)
    confirmations = messages.Confirmations.from_content(message.content)
    state = _secrets(context)
    del context.state[messages.SECURE]
    reply = protocol.unmask(state, confirmations)
    return Message(RecordDict({messages.SECURE: reply.to_record()}), reply_to=message)


def _read_node(message: Message, context: Context) -> Node:
    """Return the node; ProtocolError where the run masks nothing."""
    node, text = Node.of(context), messages.configuration_of(message.content)
    exchange = cached_configuration(text, node.plugins_folder).exchange
    if not exchange.secure_sums:
        raise ProtocolError(f"the run's exchange is '{exchange.name}', and nothing is masked")
    return node


def _secrets(context: Context) -> protocol.ClientSecrets:
    record = context.state.get(messages.SECURE)
    if not isinstance(record, ConfigRecord):
        raise ProtocolError("this client has no keys of this round: its node was started anew")
    return protocol.ClientSecrets.from_fields(record)


def _answer(
    message: Message, context: Context, state: protocol.ClientSecrets, reply: messages.Fields
) -> Message:
    context.state[messages.SECURE] = state.to_record()
    return Message(RecordDict({messages.SECURE: reply.to_record()}), reply_to=message)


STAGES = {
    messages.ADVERTISE_KEYS: advertise_keys,
    messages.SHARE_KEYS: share_keys,
    messages.CONFIRM: confirm,
    messages.UNMASK: unmask,
}
"""A client's answers besides its task in a round whose updates are masked, by their messages."""
