"""A round whose exchange is masked: the server pools a sum, and sees no update.

It is one round of secure aggregation over Flower's messages, and ends as any other round does, in
``strategies.round.step_server``.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flwr.app import RecordDict

from bfl import errors
from bfl.aggregation import pooling
from bfl.aggregation.plausibility import implausible_pool
from bfl.aggregation.weightings import Weighting
from bfl.closing.base import Array, greatest
from bfl.configuration.configuration import without_paths
from bfl.federation.client_metrics import NUM_EXAMPLES
from bfl.federation.secure_aggregation import masking, messages
from bfl.federation.secure_aggregation.accuracy import check_accuracy
from bfl.federation.secure_aggregation.server import SecureSum
from bfl.federation.wire import TRAIN
from bfl.posteriors import Manifest, Posterior
from strategies import flower_clients
from strategies.flower_clients import FlowerClients
from strategies.round import TrainingRequest, foreseen_weights, step_server
from strategies.server_state import Round

if TYPE_CHECKING:
    from bfl.configuration import Configuration
    from strategies.method import Method


ONLY_THE_SUM = "only the clients' sum is known (exchange 'masked'), not which of them has sent what"


def pool_masked_round(
    request: TrainingRequest, clients: FlowerClients, manifest: Manifest | None
) -> Round:
    """Have the clients of a round train, and return what the sum of their statistics leads to.

    Raises:
        PosteriorError: Their sum is no posterior; which client is the cause cannot be known.
        RunError: Too few clients have stayed, or rounding could carry their pool too far.
    """
    method, state = request.method, request.state
    rule, previous = method.pooling, state.posterior
    sizes = {client: clients.num_examples[client] for client in request.partition_ids}
    weights = foreseen_weights(method.weighting, sizes)
    try:  # the grid follows from the previous posterior, which is another one in each round
        check_accuracy(rule, previous, list(weights.values()), clients.min_updates(len(sizes)))
    except errors.ConfigurationError as error:
        raise errors.RunError(f"{request.name} did not begin: {error}") from error
    wanted = WantedSum(
        weights=weights,
        total=math.fsum(method.weighting.gamma_of_count(size) for size in sizes.values()),
        exponents=masking.choose_exponents(rule, previous, list(weights.values())),
        size=rule.statistics * previous.size + previous.point.size,
    )
    participants, total = add_up(clients, request, wanted)
    sums = masking.decode_statistics(total, wanted.exponents, previous.size, previous.point.size)
    shares, unrounded = [weights[client] for client in participants], state.unrounded_if_unmoved
    try:
        pooled = pooling.pool_statistics(rule, sums, shares, previous, unrounded)
        if problem := implausible_pool(pooled.posterior, previous):
            raise errors.PosteriorError(problem)
    except errors.PosteriorError as error:
        raise errors.PosteriorError(f"{error}; {ONLY_THE_SUM}") from error
    unseen = [{"client": client, NUM_EXAMPLES: sizes[client]} for client in participants]
    return step_server(request, pooled, unseen, {}, {}, manifest)


def collect_masked_sums(
    clients: FlowerClients, request: TrainingRequest, check: Callable[[Any, int], str | None]
) -> tuple[Sequence[int], Array]:
    """Return whose sums over data have come, and their total (S,), checked as one client's is."""
    most = max(clients.num_examples.values(), default=clients.options.max_examples)
    exponent, count = masking.exponent_for(greatest(most)), clients.size
    weights = dict.fromkeys(request.partition_ids, 1.0 / count)
    wanted = WantedSum(weights, float(count), [exponent], request.expected.point.size)
    participants, added = add_up(clients, request, wanted)
    total = masking.decode(added, exponent) * count
    counts = [clients.num_examples.get(client, 0) for client in participants]
    if wrong := all(counts) and check(total, sum(counts)):
        raise errors.RunError(f"{request.name}: {wrong}; {ONLY_THE_SUM}")
    return participants, total


def check_masked(
    method: Method,
    posterior: Posterior,
    configuration: Configuration | None,
    clients: FlowerClients,
    selected: Mapping[int, list[int]],
) -> None:
    """Refuse clients that send more than sums, too little that is known, or sums too coarse.

    Args:
        posterior: What the first round begins with.
        configuration: What clients are sent a part of; None: they are sent none.
        selected: The clients of each round.
    """
    known = clients.num_examples
    why = f"exchange '{method.exchange.name}': the server learns sums alone, and "
    if beside := [array.name for array in method.declared_replies(posterior)]:
        raise errors.ConfigurationError(
            f"{why}clients are to send {', '.join(beside)} besides their posteriors; "
            "allowed: exchange='direct'"
        )
    for count in {len(each) for each in selected.values()}:
        method.exchange.check_selected(count)
    ever = sorted(set().union(*selected.values()))
    if unknown := [str(client) for client in ever if client not in known]:
        raise errors.ConfigurationError(
            f"{why}the number of examples of partitions {', '.join(unknown)} is not known "
            "before the first round; allowed: nodes that declare own-examples, examples that "
            "the server assigns, or exchange='direct'"
        )
    sizes = {client: known[client] for client in ever}
    _check_clients_know_weights(method.weighting, configuration, sizes, why)
    for participants in dict.fromkeys(tuple(each) for _, each in sorted(selected.items())):
        weights = foreseen_weights(method.weighting, {each: known[each] for each in participants})
        needed = clients.min_updates(len(participants))
        check_accuracy(method.pooling, posterior, list(weights.values()), needed)
        if method.pooling.uses_previous:  # the grid of the rounds that follow is not known yet
            return


def _check_clients_know_weights(
    weighting: Weighting, configuration: Configuration | None, sizes: Mapping[int, int], why: str
) -> None:
    """Refuse weights other than clients would find by themselves, as they would send nothing.

    Clients may be sent another weighting; or the scale of a client's γ may depend on who is weighed
    with it.
    """
    own, theirs = (
        f"'{scheme.name}' ({scheme.model_dump(by_alias=True)})"
        for scheme in (weighting, configuration.weighting if configuration else weighting)
    )
    if own != theirs:
        raise errors.ConfigurationError(
            f"{why}each client checks its weight, this Strategy's weighting is {own}, and that of "
            f"the configuration that clients are sent is {theirs}; allowed: the same in both"
        )
    gammas = {client: weighting.gamma_of_count(count) for client, count in sizes.items()}
    total = math.fsum(gammas.values())
    for client, weight in foreseen_weights(weighting, sizes).items():
        if not messages.is_share(weight, gammas[client], total):
            raise errors.ConfigurationError(
                f"{why}each client checks its weight by its own number of examples, and weighting "
                f"'{weighting.name}' gives partition {client} ({sizes[client]} examples) another "
                "one besides the others than by itself; allowed: a weighting whose numbers for a "
                "client do not depend on the others, such as train-size, or exchange='direct'"
            )


@dataclass(frozen=True)
class WantedSum:
    """Sum that the clients of a round are asked for.

    Attributes:
        weights: The clients' weights, by partition id.
        total: The sum of their γ, by which a client knows its weight from its own.
        exponents: The exponents of the statistics and, last, of the point parameters.
        size: The number of elements of a client's vector.
    """

    weights: Mapping[int, float]
    total: float
    exponents: Sequence[int]
    size: int


def add_up(
    clients: FlowerClients, request: TrainingRequest, wanted: WantedSum
) -> tuple[Sequence[int], masking.Ring]:
    """Have clients train; return who has stayed, sorted, and the sum of their vectors.

    An attempt that fails is made again, with fresh masks; the last failure is a RunError.
    """
    needed = clients.min_updates(len(request.partition_ids))
    clients.usable, clients.left_out = flower_clients.UsableReplies(needed), {}
    left_out: set[int] = set()
    for attempts_left in reversed(range(clients.options.round_retries + 1)):
        try:
            return _add_up_once(clients, request, wanted, left_out, needed)
        except (errors.TooFewClientsError, errors.UnusableClientsError) as error:
            if not attempts_left:
                raise errors.RunError(f"{request.name}: {error}; nothing was unmasked") from error
            if isinstance(error, errors.UnusableClientsError):
                left_out |= error.reasons.keys()
                for client, reason in sorted(error.reasons.items()):
                    clients.left_out[client] = flower_clients.REFUSED
                    clients.warn(request.name, client, f"left out of this round: {reason}")
    raise AssertionError("unreachable")


def _add_up_once(
    clients: FlowerClients,
    request: TrainingRequest,
    wanted: WantedSum,
    left_out: Set[int],
    needed: int,
) -> tuple[Sequence[int], masking.Ring]:
    """Make one attempt, with keys and masks of its own, without clients that are ``left_out``.

    Raises:
        TooFewClientsError: There are fewer than needed, or too few to take masks off.
        UnusableClientsError: With some clients the attempt cannot end.
    """
    contents = clients.contents(request)
    tasks = {client: contents[client] for client in contents if client not in left_out}
    # The word makes each attempt's label another one, also that of a round made again.
    label = f"round {request.server_round}, {secrets.token_hex(8)}"
    # It is the same of all contents; where nobody is left, the first stage says so.
    grid = (wanted.exponents, wanted.total, without_paths)
    digest = next((messages.task_digest(content, *grid) for content in tasks.values()), b"")
    total = SecureSum(label, tasks, wanted.size, digest)

    def make_stage(
        kind: str,
        requests: Mapping[int, messages.Fields],
        answer: type[Any],
        take: Callable[[int, Any], None],
    ) -> None:
        texts = clients.configuration_texts
        _ask(
            clients,
            request,
            f"{TRAIN}.{kind}",
            {client: messages.stage_content(m, texts[client]) for client, m in requests.items()},
            lambda client, content: take(client, answer.from_content(content)),
        )

    make_stage(messages.ADVERTISE_KEYS, total.invitations(), messages.PublicKeys, total.take_keys)
    _warn_of_unsigned_keys(clients, request, total.unsigned)
    make_stage(messages.SHARE_KEYS, total.rosters(), messages.Shares, total.take_shares)
    masked_tasks = {}
    for client, delivery in total.deliveries().items():
        weight = wanted.weights[client]
        task = messages.MaskedTask.of(delivery, weight, wanted.total, wanted.exponents)
        masked_tasks[client] = RecordDict({**tasks[client], messages.SECURE: task.to_record()})
    _ask(
        clients,
        request,
        request.message_type,
        masked_tasks,
        lambda client, content: total.add_masked(client, messages.read_masked_vector(content)),
    )
    if len(total.survivors) < needed:
        raise errors.TooFewClientsError(
            f"{len(total.survivors)} of {len(tasks)} clients have sent a usable vector, "
            f"and min-clients asks for {needed}"
        )
    survivors = total.confirmation_requests()
    make_stage(messages.CONFIRM, survivors, messages.Confirmations, total.take_confirmations)
    confirmed = total.unmasking_requests()
    make_stage(messages.UNMASK, confirmed, messages.Unmasking, total.take_unmasking)
    return total.survivors, total.total()


def _ask(
    clients: FlowerClients,
    request: TrainingRequest,
    message_type: str,
    contents: Mapping[int, RecordDict],
    take: Callable[[int, RecordDict], None],
) -> None:
    """Send each client its message and take the answers; who gives none has dropped out."""
    silence, left_out, silent = clients.silence, clients.left_out, set(contents)
    to_send = [
        clients.message(client, content, message_type, request.server_round)
        for client, content in contents.items()
    ]
    for reply in flower_clients.exchange(clients.grid, to_send, silence):
        client = clients.played_by[reply.metadata.src_node_id]
        silent.discard(client)
        if reply.has_error():
            left_out[client] = flower_clients.FAILED
            clients.warn(request.name, client, f"failed: {reply.error.reason}")
            continue
        try:
            take(client, reply.content)
        except (errors.ProtocolError, ValueError) as error:
            left_out[client] = flower_clients.REFUSED
            clients.warn(request.name, client, f"refused: {error}")
    for client in sorted(silent):
        left_out[client] = flower_clients.STOPPED_ANSWERING
        reason = f"failed: no reply for {silence:g} s (client-timeout)"
        clients.warn(request.name, client, reason)


UNSIGNED = (
    "its keys of masked rounds are not signed, as its node has no clients-list: a server that "
    "played clients of its own would learn its update (docs/secure-aggregation.md)"
)


def _warn_of_unsigned_keys(
    clients: FlowerClients, request: TrainingRequest, unsigned: Sequence[int]
) -> None:
    """Warn once in a run on SuperNodes which clients' keys are not signed."""
    if unsigned and clients.federation.noise_anew and UNSIGNED not in clients.texts_shown:
        more = ", ".join(map(str, unsigned[1:]))
        text = f"{UNSIGNED}; nor are those of clients {more}" if more else UNSIGNED
        clients.warn(request.name, unsigned[0], text)
        clients.texts_shown.add(UNSIGNED)
