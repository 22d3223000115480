"""What every registered part keeps to in a run, and several together.

The bits of every round are the same whatever the order of replies, with replies lost, refused and
late, and when the server is killed after any round and built again from a checkpoint before the
last. The clients are the product's but for the training, which is a few steps in NumPy here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from choosing import going_with, word_of
from numpy_clients import Fault, KilledError, PartFederation
from numpy_server import NumpyServer

from bfl import randomness
from bfl.aggregation.pooling import pooling_rules
from bfl.aggregation.server import DistillationTask, Distilled
from bfl.configuration import Configuration, resolve
from bfl.configuration.kinds import KINDS
from bfl.federation.parts import Arrays, Counts, DeclaredArray, Part, Trained
from bfl.federation.wire import TrainTask
from bfl.learning.corrections import Correction
from bfl.posteriors import Posterior
from clients.part_states import PartStates
from strategies.configured import make_strategy
from strategies.method import Method
from strategies.posterior_pooling import Round

K, D, P, ROUNDS, STEPS, RATE = 4, 5, 3, 4, 3, 0.05
EXAMPLES = (20, 5, 11, 8)
Values = dict[str, Any]
BASE: Values = {"seed": 3, "min-clients": 1.0, "clients": K}

PARTS_OF_A_ROUND = [
    kind
    for kind in KINDS
    if kind.key == kind.registry.kind
    and (
        kind.attribute in {field.name for field in fields(Method)}
        or all(issubclass(cls, Part) for cls in kind.registry.classes())
    )
]
MOMENTUM: Values = {"server-optimizer": "momentum", "server-momentum": 0.9}
SCAFFOLD: Values = {"correction": "scaffold", "optimizer": "sgd", "momentum": 0.0}
SHORT: Values = {
    "strategy": "fedbe",
    "distillation-epochs": 5,
    "distillation-batch-size": 40,
    "swa-cycle": 5,
}

CASES: dict[str, Values] = {
    **{
        f"{kind.key}: {name}": {**going_with(kind.key, word), kind.key: word}
        for kind in PARTS_OF_A_ROUND
        for name in kind.registry.names()
        for word in [word_of(kind, name)]
        # So few clients as the faults below leave cannot take masks off: test_masked_exchange.py.
        if not (kind.key == "exchange" and kind.registry.create(name).secure_sums)
    },
    **{
        f"momentum + {rule.name}": {"pooling": rule.name, **MOMENTUM}
        for rule in pooling_rules.classes()
        if "moved-pool" not in rule().excludes()
    },
    "scaffold": {"strategy": "scaffold", "fraction-train": 0.5},
    "scaffold of option I": {"strategy": "scaffold", "scaffold-option": "I"},
    "scaffold + momentum": {"strategy": "scaffold", **MOMENTUM},
    "fedprox + conflation": {"strategy": "fedprox", "pooling": "conflation"},
    "fedbe": SHORT,
    "fedbe with a Dirichlet, of some clients": {
        **SHORT,
        "sampler": "dirichlet",
        "fraction-train": 0.75,
    },
    "fedbe + scaffold": {**SHORT, **SCAFFOLD, "weighting": "equal"},
    "fedbe + fedprox": {**SHORT, "objective": "elbo+proximal"},
    "fedbe + fedavgm, watched": {**SHORT, **MOMENTUM, "predictive": "ensemble"},
    "v-distillation": {"strategy": "v-distillation"},
    "one-ensemble": {"strategy": "one-ensemble"},
    "pvi": {"strategy": "pvi"},
    "pvi, two in turn": {
        "strategy": "pvi",
        "sampling": "cyclic",
        "clients-in-turn": 2,
        "damping": 1.0,
    },
    "pvi from one's own": {"strategy": "pvi", "start-afterwards": "own"},
}


def initial() -> Posterior:
    generator = np.random.default_rng(1)
    return Posterior(
        generator.normal(size=D).astype(np.float32),
        generator.uniform(0.5, 1.5, D).astype(np.float32),
        generator.normal(size=P).astype(np.float32),
    )


def training(configuration: Configuration) -> Any:
    """Return clients that go a few steps towards their own targets, as the parts will have it."""
    start, prior, correction = configuration.start, configuration.prior, configuration.correction

    def train(task: TrainTask, received: Posterior, beside: Arrays, states: PartStates) -> Trained:
        begun = start.begin(states.of_part(start), received, initial)
        before = prior.density(received, states.of_part(prior)).standardized()
        offsets = correction.offsets(states.of_part(correction), beside, received)
        k, examples = task.partition_id, EXAMPLES[task.partition_id]
        noise = randomness.generator(3, "training", task.server_round, k)

        def gradient(name: str, values: Any) -> Any:
            pull = (0.5 + 0.2 * k) * (values - np.sin(k + np.arange(values.size)))
            if name == "mean":
                shift = values - before.centre
                pull = pull + (before.sign * shift / np.square(before.scale) - before.slope) / (
                    50 * examples
                )
            return pull + 0.1 * noise.normal(size=values.size)

        vectors = {"mean": begun.mean, "point": begun.point}
        for name, vector in vectors.items():
            for _ in range(STEPS):
                vector = vector - RATE * (gradient(name, vector) + offsets.get(name, 0.0))
            vectors[name] = vector.astype(np.float32)
        variance = begun.variance * noise.uniform(0.6, 0.9, D)
        sent = Posterior(vectors["mean"], variance.astype(np.float32), vectors["point"])
        full = {name: gradient(name, getattr(received, name)) for name in vectors}
        return Trained(received, sent, beside, examples, STEPS, RATE, np.ones(P, bool), full)

    return train


def federation(folder: Path, values: Values, order: Any = list, **more: Any) -> PartFederation:
    configuration = resolve({**BASE, **values})

    def faults(server_round: int, partition_id: int) -> Fault:
        asked = configuration.sampling.sample(3, server_round, K)
        if partition_id == asked[server_round % len(asked)]:
            return ""
        kinds: tuple[Fault, ...] = ("late", "", "lost", "refused")
        return kinds[(3 * server_round + partition_id) % 4]

    def made(**given: Any) -> Any:
        given = {"server": more.get("server", NumpyServer(D + P)), **given}
        strategy = make_strategy(configuration, 10, [np.arange(n) for n in EXAMPLES], **given)
        strategy.method = more.get("method", strategy.method)
        return strategy

    first = configuration.prior.first_posterior(initial())
    trains = more.get("training", training(configuration))
    return PartFederation(folder, made, trains, K, first, faults, order)


def bits(rounds: Sequence[Round]) -> list[Any]:
    """Return all that a run leaves behind but what depends on the machine."""
    return [
        (
            done.number,
            done.posterior.digest(),
            {name: array.tobytes() for name, array in done.state.to_arrays().items()},
            done.metrics,
            done.clients,
        )
        for done in rounds
    ]


def check_contract(folder: Path, values: Values, **more: Any) -> list[Round]:
    """Assert what every method keeps to; return the rounds."""
    rounds = federation(folder / "whole", values, **more).run(ROUNDS)
    assert sum(done.metrics["failures"] for done in rounds) > 0 or len(rounds[0].clients) == 1
    turned = federation(folder / "turned", values, order=reversed, **more).run(ROUNDS)
    assert bits(turned) == bits(rounds)
    killed = federation(folder / "killed", values, **more)
    for number in range(1, ROUNDS + 1):
        with pytest.raises(KilledError):
            killed.run(ROUNDS, killed_after=number, lost_checkpoints=1 if number > 2 else 0)
    assert bits(killed.run(ROUNDS, lost_checkpoints=1)) == bits(rounds)
    return rounds


def test_all_kinds_of_parts_of_a_round_are_here() -> None:
    keys = {kind.key for kind in PARTS_OF_A_ROUND}
    assert keys >= {"sampling", "pooling", "weighting", "defence", "server-optimizer"}
    assert keys >= {"prior", "start", "objective", "correction"}
    assert keys >= {"refinement", "sampler", "predictive"}


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_the_same_bits_whatever_happens_to_replies_and_to_the_server(
    values: Values, tmp_path: Path
) -> None:
    check_contract(tmp_path, values)


@pytest.mark.parametrize("values", [{"strategy": "pvi"}, {"strategy": "fedavgm"}])
def test_states_are_those_of_a_direct_run_where_sums_alone_are_known(
    values: Values, tmp_path: Path
) -> None:
    """With a client whose update is lost after it has kept its state, and a kill."""

    def one_is_lost(server_round: int, partition_id: int) -> Fault:
        return "lost" if server_round == 2 and partition_id == 1 else ""

    direct = federation(tmp_path / "direct", values)
    masked = federation(tmp_path / "masked", {**values, "exchange": "masked"})
    direct._faults = masked._faults = one_is_lost
    with pytest.raises(KilledError):
        masked.run(ROUNDS, killed_after=3)
    found, expected = masked.run(ROUNDS)[-1], direct.run(ROUNDS)[-1]
    assert found.metrics["clients"] == 4
    assert found.state.damping.tolist() == pytest.approx(expected.state.damping.tolist())
    mine, its = found.posterior, expected.posterior
    np.testing.assert_allclose(mine.mean, its.mean, atol=1e-5)
    np.testing.assert_allclose(mine.variance, its.variance, rtol=1e-5)
    np.testing.assert_allclose(mine.point, its.point, rtol=1e-5)


def test_control_variates_sum_to_the_servers_whatever_is_lost(tmp_path: Path) -> None:
    """Of the updates that were pooled, and of no others; with momentum on the server as well."""
    from bfl.federation.state import Snapshots

    values = {**CASES["scaffold + momentum"], "fraction-train": 0.75}
    done = federation(tmp_path, values).run(6)[-1]
    total = np.zeros(D)
    for k, last in enumerate(done.state.pooled_rounds):
        if last:
            kept = Snapshots(tmp_path / "clients" / f"client-{k:06d}", kept=3).at(int(last))
            assert kept is not None
            total += kept["part.scaffold.control-mean"]
    server = done.state.parts["scaffold"]["control-mean"]
    assert np.abs(server).max() > 0.01
    np.testing.assert_allclose(server, total / K, rtol=1e-12, atol=1e-15)


class Killed(NumpyServer):
    """Ends while it distils, the first time in a round."""

    def distil(self, task: DistillationTask) -> Distilled:
        if task.labels not in [before.labels for before in self.tasks]:
            self.tasks.append(task)
            raise KilledError
        return super().distil(task)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_kill_while_distilling_costs_that_step_and_no_training(lost: int, tmp_path: Path) -> None:
    """Nobody trains again in a round that has been pooled, unless its checkpoint is lost too."""
    values = {**CASES["fedbe"], "fraction-train": 0.75}
    whole = federation(tmp_path / "whole", values).run(ROUNDS)
    trained: list[tuple[int, int]] = []
    train = training(resolve({**BASE, **values}))

    def counted(task: TrainTask, *given: Any) -> Trained:
        trained.append((task.server_round, task.partition_id))
        return train(task, *given)

    killed = federation(tmp_path / "killed", values, server=Killed(D + P), training=counted)
    for _ in range(ROUNDS):
        with pytest.raises(KilledError):
            killed.run(ROUNDS)
    assert bits(killed.run(ROUNDS, lost_checkpoints=lost)) == bits(whole)
    assert (len(trained) == len(set(trained))) == (lost == 0)


def test_what_is_distilled_nears_the_ensemble(tmp_path: Path) -> None:
    for done in federation(tmp_path, CASES["fedbe"]).run(ROUNDS):
        assert done.metrics["distillation-after"] < done.metrics["distillation-before"]
        assert done.metrics["distillation-models"] > 1


def test_v_distillation_is_fedbe_with_clients_alone_and_sgd(tmp_path: Path) -> None:
    """Bit for bit."""
    alone = {
        "ensemble-samples": 0,
        "ensemble-average": False,
        "distillation-optimizer": "sgd",
    }
    fedbe = federation(tmp_path / "fedbe", {"strategy": "fedbe", **alone})
    vanilla = federation(tmp_path / "v", {"strategy": "v-distillation"})
    assert bits(fedbe.run(ROUNDS)) == bits(vanilla.run(ROUNDS))
    averaging = federation(tmp_path / "fedavg", {"strategy": "fedavg"})
    assert bits(averaging.run(1))[0][1] != bits(vanilla.run(1))[0][1]


def test_the_student_begins_at_the_moved_average(tmp_path: Path) -> None:
    """With momentum as well: the paper initialises distillation with FedAvgM's model."""
    server = NumpyServer(D + P)
    values = {**CASES["fedbe + fedavgm, watched"], "distillation-learning-rate": 1e-30}
    values["swa-lowest-rate"] = 1e-30
    done = federation(tmp_path / "fedbe", values, server=server).run(2)
    plain = federation(tmp_path / "fedavgm", {"strategy": "fedavgm"}).run(2)
    for task, after, expected in zip(server.tasks, done, plain, strict=True):
        assert task.start.digest() == after.posterior.digest() == expected.posterior.digest()
        assert after.state.predictive["average.mean"].tobytes() == task.start.mean.tobytes()


# The contract can be broken


class Forgetful(Correction):
    """Keeps its number of rounds beside its state: what a kill takes away."""

    name: ClassVar[str] = "forgetful"
    state_name: ClassVar[str] = "forgetful"
    keeps_on_clients: ClassVar[bool] = False
    server_rounds: ClassVar[list[int]] = []

    def begin_server(self, posterior: Posterior, clients: int) -> Arrays:
        self.server_rounds.clear()
        return {"sum": np.zeros(D)}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"count": np.full(D, len(self.server_rounds), np.float32)}

    def sent(self, posterior: Posterior) -> tuple[DeclaredArray, ...]:
        return (DeclaredArray("count", (D,)),)

    def fold(self, state: Arrays, combined: Arrays, counts: Counts) -> Arrays:
        self.server_rounds.append(counts.server_round)
        return state

    def offsets(self, state: Arrays, broadcast: Arrays, received: Posterior) -> Arrays:
        return {"mean": broadcast["count"]}


class Sound(Forgetful):
    """The same with its number of rounds in its state."""

    state_name: ClassVar[str] = "sound"

    def begin_server(self, posterior: Posterior, clients: int) -> Arrays:
        return {"rounds": np.zeros(())}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"count": np.full(D, state["rounds"], np.float32)}

    def fold(self, state: Arrays, combined: Arrays, counts: Counts) -> Arrays:
        return {"rounds": state["rounds"] + 1}


@pytest.mark.parametrize(("part", "sound"), [(Sound(), True), (Forgetful(), False)])
def test_a_part_that_keeps_something_elsewhere_breaks_it(
    part: Correction, sound: bool, tmp_path: Path
) -> None:
    from dataclasses import replace

    configuration = replace(resolve({**BASE, "strategy": "fedavg"}), correction=part)
    more = {"method": Method.of(configuration), "training": training(configuration)}
    if sound:
        check_contract(tmp_path, {"strategy": "fedavg"}, **more)
        return
    with pytest.raises(AssertionError):
        check_contract(tmp_path, {"strategy": "fedavg"}, **more)
