"""What every registered part keeps to in a run, and several together.

The bits of every round are the same whatever the order of replies, with replies lost, refused and
late, and when the server is killed after any round and built again from a checkpoint before the
last. The clients are the product's but for the training, which is a few steps in NumPy here.

What has no hand in a round but in training is not here. `workload`, `schedule`, `augmentation`,
`example-privacy` and a network's `inference` keep nothing between rounds: they are given the seed,
the round and the partition. That runs with real networks go on with the same bits is tested in
tests/engine: a schedule, augmented images and an `optimizer`'s state in test_resume.py, whole
methods in test_methods.py, personal models in test_personal_models.py, heads that are not sent in
test_own_heads.py, the server's student in test_ensembles.py, a budget of ε in test_private_runs.py.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from choosing import going_with, word_of
from numpy_clients import Fault, Faults, KilledError, PartFederation
from numpy_server import NumpyServer

from bfl import randomness
from bfl.configuration import Configuration, resolve
from bfl.configuration.component_slots import SLOTS
from bfl.federation.attacks import attacks
from bfl.federation.outgoing import outgoing_parts
from bfl.federation.parts import Arrays, Trained, TwoSidedPart
from bfl.federation.sampling import Sampling
from bfl.federation.wire import TrainTask
from bfl.posteriors import Posterior
from clients.state import PartStates
from strategies import make_strategy
from strategies.method import Method, RunSupport
from strategies.privacy import pool_noise
from strategies.server_state import Round

K, D, P, ROUNDS, STEPS, RATE = 4, 5, 3, 4, 3, 0.05
EXAMPLES = (20, 5, 11, 8)
Values = dict[str, Any]
BASE: Values = {"seed": 3, "min-clients": 1.0, "clients": K}

PARTS_OF_A_ROUND = [
    kind
    for kind in SLOTS
    if kind.key == kind.registry.kind != "closing"  # which comes after the last round
    and (
        kind.attribute in {field.name for field in fields(Method)}
        or all(issubclass(cls, TwoSidedPart) for cls in kind.registry.classes())
        or kind.registry in (attacks, outgoing_parts)
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

NEEDED: dict[str, Values] = {f"attack: {name}": {"attackers": 2} for name in attacks.names()}
"""What a part is given beside its name, by its case."""

CASES: dict[str, Values] = {
    **{
        f"{kind.key}: {name}": {
            **going_with(kind.key, word),
            kind.key: word,
            **NEEDED.get(f"{kind.key}: {name}", {}),
        }
        for kind in PARTS_OF_A_ROUND
        for name in kind.registry.names()
        for word in [word_of(kind, name)]
        # So few clients as the faults below leave cannot take masks off: test_masked_exchange.py.
        if not (kind.key == "exchange" and kind.registry.create(name).secure_sums)
    },
    "momentum + conflation": {"pooling": "conflation", **MOMENTUM},
    "scaffold": {"strategy": "scaffold", "fraction-train": 0.5},
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
        before = prior.density(received, states.of_part(prior)).standardize()
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


def faults_of(sampling: Sampling) -> Faults:
    """Return what goes wrong in turn with the clients of a round, of which one is spared."""
    kinds: tuple[Fault, ...] = ("late", "lost", "refused", "")

    def faults(server_round: int, partition_id: int) -> Fault:
        asked = list(sampling.sample(3, server_round, K))
        spared = asked.pop(server_round % len(asked))
        if partition_id == spared:
            return ""
        return kinds[((server_round - 1) * len(asked) + asked.index(partition_id)) % len(kinds)]

    return faults


def federation(folder: Path, values: Values, order: Any = list, **more: Any) -> PartFederation:
    configuration = resolve({**BASE, **values})
    faults = faults_of(configuration.sampling)

    def made(run: RunSupport) -> Any:
        server = more.get("server", NumpyServer(D + P))
        lent = replace(run, server=server, pool_noise=pool_noise(configuration, anew=False))
        return make_strategy(configuration, 10, [np.arange(n) for n in EXAMPLES], lent)

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


def check_faults(values: Values, whole: PartFederation) -> None:
    """Assert that replies were lost, refused and late, each in its round, and no others."""
    sampling = resolve({**BASE, **values}).sampling
    asked = {n: sampling.sample(3, n, K) for n in range(1, ROUNDS + 1)}
    if all(len(clients) == 1 for clients in asked.values()):
        return  # nobody to spare
    faults = faults_of(sampling)
    happened = {n: [faults(n, k) for k in clients] for n, clients in asked.items()}
    assert {"late", "lost", "refused"} <= set().union(*happened.values())
    for done in whole.finished:
        expected = happened[done.number]
        assert done.metrics["failures"] == expected.count("late") + expected.count("lost")
        assert done.metrics["refused"] == expected.count("refused")
        assert len(done.clients) == expected.count("")
    late = [(n, k) for n in asked for k in asked[n] if n < ROUNDS and faults(n, k) == "late"]
    assert sorted(whole.handed_late) == late


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_the_same_bits_whatever_happens_to_replies_and_to_the_server(
    values: Values, tmp_path: Path
) -> None:
    whole = federation(tmp_path / "whole", values)
    expected = bits(whole.run(ROUNDS))
    check_faults(values, whole)
    turned = federation(tmp_path / "turned", values, order=reversed)
    assert bits(turned.run(ROUNDS)) == expected
    killed = federation(tmp_path / "killed", values)
    for number in (1, 3):
        with pytest.raises(KilledError):
            killed.run(ROUNDS, killed_after=number, lost_checkpoints=number // 3)
    assert bits(killed.run(ROUNDS, lost_checkpoints=1)) == expected


@pytest.mark.parametrize("values", [{"strategy": "pvi"}, {"strategy": "fedavgm"}])
def test_states_are_those_of_a_direct_run_where_sums_alone_are_known(
    values: Values, tmp_path: Path
) -> None:

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
    from bfl.federation.state import Snapshots

    values = {**CASES["scaffold + momentum"], "fraction-train": 0.75}
    done = federation(tmp_path, values).run(6)[-1]
    total = np.zeros(D)
    for k, last in enumerate(done.state.last_pooled):
        if last:
            kept = Snapshots(tmp_path / "clients" / f"client-{k:06d}", kept=3).at(int(last))
            assert kept is not None
            total += kept["part.scaffold.control-mean"]
    server = done.state.parts["scaffold"]["control-mean"]
    assert np.abs(server).max() > 0.01
    np.testing.assert_allclose(server, total / K, rtol=1e-12, atol=1e-15)
