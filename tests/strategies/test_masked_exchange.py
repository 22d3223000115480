"""Masked rounds: sums as pooling one by one gives them, faults, and weights that clients check."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

import numpy as np
import pytest
from flwr.app import Array, ConfigRecord, Context, Message, RecordDict
from masked_federation import MASKED, SIZES, START, Fault, MaskedNodes, Run, no_fault, trained
from small_federation import arguments, make_grid

from bfl.aggregation.weightings.base import Weighting
from bfl.configuration import Configuration, resolve
from bfl.deployment import setup
from bfl.deployment.settings import ServerSettings
from bfl.engine.flower import new_run
from bfl.errors import ConfigurationError, RunError
from bfl.federation.sampling import RandomSampling
from bfl.federation.secure_aggregation.messages import SECURE, Delivery, MaskedTask
from bfl.federation.wire import TrainTask, posterior_to_arrays
from bfl.learning.corrections import Scaffold
from bfl.posteriors import Posterior
from clients.client_app import train
from strategies import PosteriorPooling
from strategies.server_state import ServerState


def failing(stage: str, *clients: int, rounds: tuple[int, ...] = (1, 2)) -> Fault:
    return lambda now, client, number: now == stage and client in clients and number in rounds


@pytest.mark.parametrize("pooling", ["weighted-conflation", "linear-pool", "dwc"])
def test_a_masked_run_ends_where_a_direct_one_does(pooling):
    masked, direct = Run({**MASKED, "pooling": pooling}), Run({"pooling": pooling})
    masked.close_to(direct)
    assert not masked.warnings
    for found, expected in zip(masked.rounds, direct.rounds, strict=True):
        assert found.metrics["clients"] == 6
        assert found.metrics["num-examples"] == expected.metrics["num-examples"]
        assert [c["client"] for c in found.clients] == list(range(6))
        np.testing.assert_array_equal(found.state.last_pooled, expected.state.last_pooled)


def test_masks_are_fresh_and_leave_no_bit_in_the_result():
    first, second = Run({**MASKED}), Run({**MASKED})
    assert first.posterior.digest() == second.posterior.digest()
    for client in range(6):
        one, other = (run.nodes.sent[client]["arrays"]["masked"].numpy() for run in (first, second))
        assert one.shape == other.shape == (103,)
        assert not (one == other).any()


def test_a_run_that_goes_on_after_a_round_ends_with_the_same_bits():
    whole = Run(MASKED, rounds=3)
    state = whole.rounds[0].state
    first = ServerState.from_arrays(1, state.posterior, state.to_arrays())
    assert Run(MASKED, rounds=3, state=first).posterior.digest() == whole.posterior.digest()


@pytest.mark.parametrize("stage", ["advertise_keys", "train", "unmask"])
def test_a_client_that_drops_out_is_left_out_where_its_update_has_not_come(stage):
    faulty = MaskedNodes(fault=failing(stage, 2))
    run = Run(MASKED, nodes=faulty)
    heard = stage == "unmask"
    left = no_fault if heard else failing("train", 2)
    run.close_to(Run({}, nodes=MaskedNodes(fault=left)))
    assert run.rounds[0].metrics["clients"] == (6 if heard else 5)
    assert run.rounds[0].metrics["failures"] == (0 if heard else 1)
    reasons = [(each["client"], each["reason"]) for each in run.rounds[0].left_out]
    assert reasons == ([] if heard else [(2, "failed")])
    assert "client 2: failed" in run.warnings[0]
    assert f"{stage}: the node is down" in run.warnings[0]


@pytest.mark.parametrize("who", ["simulated", "nobody signs", "all sign"])
def test_it_is_said_once_on_supernodes_that_keys_are_not_signed(who, tmp_path, capsys):
    configs = [{"simulation": who == "simulated"} for _ in SIZES]
    if who == "all sign":
        made = setup.init(
            tmp_path / "made", ServerSettings(hosts=("a",)), str(len(SIZES)), datetime.now(UTC)
        )
        listed = {"clients-list": str(made.server / "clients.toml")}
        for k, config in enumerate(configs):
            config |= {**listed, "signing-key": str(made.client(f"client-{k}") / "client.key")}
    run = Run(MASKED, rounds=2, node_configs=configs)
    log = capsys.readouterr().err
    if who == "nobody signs":
        (said,) = run.warnings
        assert said.startswith("round 1, client 0: its keys of masked rounds are not signed")
        assert said.endswith("nor are those of clients 1, 2, 3, 4, 5")
        assert log.count("masks updates, and this node has no clients-list") == 1  # one process
    else:
        assert run.warnings == []
        assert "clients-list" not in log
    assert [each.metrics["clients"] for each in run.rounds] == [6, 6]


def test_a_round_with_too_few_is_made_again_with_other_masks():
    failed: set[tuple[int, int]] = set()

    def once(stage: str, client: int, number: int) -> bool:
        if stage != "train" or client > 2 or (client, number) in failed:
            return False
        failed.add((client, number))
        return True

    nodes = MaskedNodes(fault=once)
    run = Run(MASKED, rounds=1, nodes=nodes)
    assert run.posterior.digest() == Run(MASKED, rounds=1).posterior.digest()
    assert [kind for kind, _ in nodes.stages].count("advertise_keys") == 12
    assert [kind for kind, _ in nodes.stages].count("unmask") == 6


def test_a_run_ends_where_too_few_stay_in_every_attempt():
    nodes = MaskedNodes(fault=failing("train", 0, 1, 2))
    with pytest.raises(RunError, match="round 1: masked vectors have come of clients 3, 4, 5"):
        Run(MASKED, rounds=1, nodes=nodes)
    assert "unmask" not in {kind for kind, _ in nodes.stages}
    assert "confirm" not in {kind for kind, _ in nodes.stages}
    with pytest.raises(RunError, match="5 of 6 clients have sent a usable vector, and min-clients"):
        Run(MASKED, rounds=1, nodes=MaskedNodes(fault=failing("train", 0)), min_clients=6)


def test_a_client_outside_of_the_range_says_so_and_is_left_out():
    def far(task, received):
        posterior = trained(task, received)
        if task.partition_id == 1:
            posterior = Posterior(posterior.mean + 99, posterior.variance, posterior.point)
        return posterior

    run = Run(MASKED, rounds=1, nodes=MaskedNodes(far))
    assert "client 1: failed" in run.warnings[0]
    assert "the posterior has 50 of 50 means further than 16" in run.warnings[0]
    run.close_to(Run({}, rounds=1, nodes=MaskedNodes(fault=failing("train", 1))))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"pooling": "population-pooling"}, "exchange 'masked' needs a pool of sums"),
        ({"pooling": "ws", "weighting": "maximum-discrepancy"}, "weights that do not depend on"),
        ({"defence": "winsorization"}, "goes with no change of what clients have sent"),
        ({"strategy": "scaffold"}, "correction"),
        ({"predictive": "ensemble"}, "no look at single clients' models"),
        ({"evaluated-by": "clients"}, "no numbers that clients have measured"),
        ({"pretrain-examples": 100.0}, "goes with no start other than the prior"),
    ],
)
def test_what_needs_single_updates_is_refused_before_anything_starts(given, said):
    resolve({"dataset": "digits", **given})
    with pytest.raises(ConfigurationError, match=said):
        resolve({"dataset": "digits", **MASKED, **given})


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"rule": "population-pooling"}, "exchange 'masked' needs a pool of sums"),
        (
            {"rule": "nwa", "weighting": "equal", "parts": (Scaffold(),)},
            "no array that clients send",
        ),
        (
            {"rule": "nwa", "partition": None},
            "examples of partitions 0, 1, 2, 3, 4, 5 is not known",
        ),
        ({"rule": "nwa", "sampling": RandomSampling(fraction_train=0.3)}, "of 2 clients a round"),
    ],
)
def test_a_strategy_of_ones_own_is_refused_likewise_before_anybody_trains(parts, said):
    nodes = MaskedNodes()
    given = {"partition": [np.arange(size) for size in SIZES], **parts}
    strategy = PosteriorPooling(**arguments(exchange="masked", **given))
    with pytest.raises(ConfigurationError, match=said):
        strategy.start(make_grid(nodes.app(), len(SIZES)), posterior_to_arrays(START))
    assert not nodes.stages


class Tampering(MaskedNodes):
    """Clients of which one changes what it has answered at a stage, in some of its attempts."""

    def __init__(self, stage, liar, change):
        super().__init__()
        self.stage, self.liar, self.change = stage, liar, change

    def _stage(self, kind, answer):
        honest = super()._stage(kind, answer)

        def work(message, context):
            reply = honest(message, context)
            if kind == self.stage and int(context.node_config["partition-id"]) == self.liar:
                record = reply.content["secure-aggregation"]
                record.update(self.change(dict(record)))
            return reply

        return work


def test_a_sum_that_is_of_no_use_ends_the_run_and_nobody_is_blamed():
    """A posterior, with point parameters of 1.6e4 where clients were sent up to 2."""

    class Liar(MaskedNodes):
        """Clients of which one sends something else in place of its masked vector."""

        def _train(self, message, context):
            content = super()._train(message, context)
            if int(context.node_config["partition-id"]) == 2:
                vector = content["arrays"]["masked"].numpy()
                far = vector + (np.arange(vector.size) >= 100) * np.uint64(2**56)
                content["arrays"]["masked"] = Array(far.reshape(vector.shape))
            return content

    with pytest.raises(RunError, match="not which of them has sent what") as caught:
        Run(MASKED, rounds=1, nodes=Liar())
    assert "client 2" not in str(caught.value)


@pytest.mark.parametrize(
    ("stage", "change", "said"),
    [
        ("advertise_keys", lambda r: {"own_mask": bytes(32)}, "shares do not give the secret"),
        ("share_keys", lambda r: {"masking": [bytes(32)] * 6}, "clients 0, 1, 3, 4, 5 were sealed"),
    ],
)
def test_a_client_that_keeps_an_attempt_from_ending_is_left_out_of_the_next(stage, change, said):
    run = Run(MASKED, rounds=1, nodes=Tampering(stage, 2, change))
    run.close_to(Run({}, rounds=1, nodes=MaskedNodes(fault=failing("train", 2))))
    assert any(
        "client 2: left out of this round: " in text and said in text for text in run.warnings
    )
    assert run.rounds[0].metrics["clients"] == 5
    assert [each["reason"] for each in run.rounds[0].left_out] == ["update refused"]
    assert (run.rounds[0].metrics["refused"], run.rounds[0].metrics["failures"]) == (1, 0)


class Shares(Weighting):
    """Weights that sum to 1 whoever is weighed, as those of a direct exchange may."""

    name: ClassVar[str] = "shares"
    counts_only: ClassVar[bool] = True

    def gamma(
        self, posteriors: Sequence[Posterior], num_examples: Sequence[int], previous: Any
    ) -> np.ndarray:
        """Return shares of the examples (K,)."""
        counts = np.asarray(num_examples, np.float64)
        return np.asarray(counts / counts.sum())


def start(nodes: MaskedNodes, weighting: Any, configuration: Configuration | None) -> None:
    strategy = PosteriorPooling(
        **arguments(
            rule="nwa",
            weighting=weighting,
            exchange="masked",
            configuration=configuration,
            partition=[np.arange(size) for size in SIZES],
        )
    )
    grid = make_grid(nodes.app(), len(SIZES))
    strategy.start(grid, posterior_to_arrays(START), num_rounds=1, timeout=1.0)


def test_clients_are_sent_the_weighting_that_their_weights_are_made_by() -> None:
    nodes = MaskedNodes()
    with pytest.raises(ConfigurationError) as caught:
        start(nodes, "equal", resolve(MASKED))
    said = "weighting is 'equal'"
    assert said in str(caught.value)
    assert not nodes.stages
    start(nodes, "equal", resolve({**MASKED, "weighting": "equal"}))
    assert [kind for kind, _ in nodes.stages].count("train") == len(SIZES)


def test_a_client_must_find_its_weight_without_the_others_numbers() -> None:
    nodes = MaskedNodes()
    with pytest.raises(ConfigurationError) as caught:
        start(nodes, Shares(), None)
    assert "'shares' gives partition 0 (10 examples)" in str(caught.value)
    assert not nodes.stages


def test_a_client_refuses_a_wrong_weight_before_it_trains() -> None:
    given = json.dumps({"dataset": "digits", "exchange": "masked"})
    config = TrainTask(1, 1, given, 10, np.arange(10)).to_config()
    delivery = Delivery("round 1", [0, 1, 2], [0, 2], [b"", b""], [b"", b""], [b"", b""])

    def reason(weight: float) -> str:
        record = MaskedTask.of(delivery, weight, 100.0, [0]).to_record()
        content = RecordDict({"config": ConfigRecord(dict(config)), SECURE: record})
        node = {"partition-id": 1, "num-partitions": 3, "simulation": True}
        context = Context(new_run({}).run_id, 1, node, RecordDict(), {})
        return str(train(Message(content, 1, "train"), context).error.reason)

    assert "the server gives this client the weight 0.9, which by weighting" in reason(0.9)
    assert "KeyError: 'arrays'" in reason(0.1)


@pytest.mark.parametrize("bound", [None, 0.5, 1.0])
def test_a_client_whose_update_would_be_nearly_the_whole_sum_sends_nothing(bound: Any) -> None:
    nodes = MaskedNodes(sizes=(5, 8, 6, 3000))
    bounds = [{} if bound is None else {"greatest-weight": bound}] * len(nodes.sizes)
    run = Run({**MASKED, "pooling": "nwa"}, 1, nodes, node_configs=bounds)
    left_out = bound == 0.5
    assert [c["client"] for c in run.rounds[0].clients] == [0, 1, 2] + [3] * (not left_out)
    assert bool(run.warnings) == left_out
    for text in run.warnings:
        assert "client 3: failed" in text
        assert "the weight 0.993707, and its node takes none that great (greatest-weight)" in text
