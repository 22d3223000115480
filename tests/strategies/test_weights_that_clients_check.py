"""Clients of a masked round check their weights: what they would refuse is refused beforehand."""

import json
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from masked_federation import MASKED, SIZES, START, MaskedNodes, Run, values
from small_federation import arguments, make_grid

from bfl.aggregation.weightings.base import Array, Weighting
from bfl.engine.flower import new_run
from bfl.errors import ConfigurationError
from bfl.federation.exchanges import Direct, Exchange
from bfl.federation.exchanges.masked import Masked
from bfl.federation.secure_aggregation.messages import Delivery, SecureSums
from bfl.federation.secure_aggregation.on_the_wire import SECURE, MaskedTask, record_of
from bfl.federation.wire import TrainTask, posterior_to_arrays
from bfl.posteriors import Posterior
from clients.client_app import train
from clients.node import Node
from strategies import PosteriorPooling


class Shares(Weighting):
    """Weights that sum to 1 whoever is weighed, as those of a direct exchange may."""

    name: ClassVar[str] = "shares"
    counts_only: ClassVar[bool] = True

    def gamma(
        self, posteriors: Sequence[Posterior], num_examples: Sequence[int], previous: Any
    ) -> Array:
        """Return shares of the examples (K,)."""
        counts = np.asarray(num_examples, np.float64)
        return np.asarray(counts / counts.sum())


def start(nodes: MaskedNodes, weighting: Any, configuration: str) -> None:
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
        start(nodes, "equal", values(exchange="masked"))
    said = "weighting is 'equal', and that of the configuration that clients are sent is 'train-s"
    assert said in str(caught.value)
    assert not nodes.stages
    start(nodes, "equal", values(exchange="masked", weighting="equal"))
    assert [kind for kind, _ in nodes.stages].count("train") == len(SIZES)


def test_a_client_must_find_its_weight_without_the_others_numbers() -> None:
    nodes = MaskedNodes()
    with pytest.raises(ConfigurationError) as caught:
        start(nodes, Shares(), "{}")
    assert "'shares' gives partition 0 (10 examples)" in str(caught.value)
    assert not nodes.stages


def test_a_client_refuses_a_wrong_weight_before_it_trains() -> None:
    """It has not even looked for the posterior, of which there is none here."""
    given = json.dumps({"dataset": "digits", "exchange": "masked"})
    config = TrainTask(1, 1, given, 10, np.arange(10)).to_config()
    delivery = Delivery("round 1", [0, 1, 2], [0, 2], [b"", b""], [b"", b""], [b"", b""])

    def reason(weight: float) -> str:
        record = record_of(MaskedTask.of(delivery, weight, 100.0, [0]))
        content = RecordDict({"config": ConfigRecord(dict(config)), SECURE: record})
        node = {"partition-id": 1, "num-partitions": 3, "simulation": True}
        context = Context(new_run({}).run_id, 1, node, RecordDict(), {})
        return str(train(Message(content, 1, "train"), context).error.reason)

    assert "the server gives this client the weight 0.9, which by weighting" in reason(0.9)
    assert "KeyError: 'arrays'" in reason(0.1)


@pytest.mark.parametrize("bound", [None, 0.5, 1.0])
def test_a_client_whose_update_would_be_nearly_the_whole_sum_sends_nothing(bound: Any) -> None:
    """Where its node bounds its weight: nothing lies here, the clients are that unequal."""
    nodes = MaskedNodes(sizes=(5, 8, 6, 3000))
    bounds = [{} if bound is None else {"greatest-weight": bound}] * len(nodes.sizes)
    run = Run({**MASKED, "pooling": "nwa"}, 1, nodes, node_configs=bounds)
    left_out = bound == 0.5
    assert [c["client"] for c in run.rounds[0].clients] == [0, 1, 2] + [3] * (not left_out)
    assert bool(run.warnings) == left_out
    for text in run.warnings:
        assert "client 3: failed" in text
        assert "the weight 0.993707, and its node takes none that great (greatest-weight)" in text


@pytest.mark.parametrize("bound", [0, 1.5, True, "0.5", float("nan")])
def test_a_node_says_what_its_greatest_weight_may_be(bound: Any) -> None:
    config = {"partition-id": 0, "num-partitions": 3, "greatest-weight": bound}
    context = Context(run_id=1, node_id=1, node_config=config, state=RecordDict(), run_config={})
    with pytest.raises(ConfigurationError, match=r"greatest-weight is .*; allowed: "):
        Node.of(context)


def test_whoever_adds_up_checks_weights() -> None:
    class Added(Exchange):
        """Sums that are not those of ``masked``."""

        @property
        def secure_sums(self) -> SecureSums:
            """Return those that ``masked`` has by default."""
            return Masked().secure_sums

    assert Added().clients_check == Masked().clients_check == {"weighting"}
    assert Direct().clients_check == frozenset()
