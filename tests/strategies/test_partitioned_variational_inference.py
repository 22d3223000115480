"""Partitioned variational inference through the product's whole round, where everything is known.

Bayesian linear regression by clients whose Gram matrices are diagonal: the posterior of any of
their data is known. With L_k the likelihood of client k, a client solves for q_k = q L_k / t_k, so
each time it is pooled with damping ρ what its factor t_k = L_k^(1 − r_k) lacks falls by 1 − ρ:
r_k ← (1 − ρ) r_k, from 1. Then q = p ∏ L_k^(1 − r_k) after every round, whatever is lost. With
ρ = 1 that is the exact posterior of the clients pooled so far.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy_clients import Fault, Faults, KilledError, LocalTraining, PartFederation, no_faults
from small_federation import arguments

from bfl import randomness
from bfl.aggregation.pooling import pooling_rules
from bfl.federation.parts import Arrays, Trained
from bfl.federation.sampling import Sampling, samplings
from bfl.federation.state import Snapshots
from bfl.federation.wire import TrainTask
from bfl.learning.priors import QuadraticPrior, priors
from bfl.posteriors import Posterior
from bfl.posteriors.posterior import NaturalParameters
from clients.state import PartStates
from strategies import PosteriorPooling
from strategies.server_state import Round

D, NOISE = 4, 0.5
COUNTS = (4, 7, 12, 20, 40)
K = len(COUNTS)
NETWORK = Posterior(np.arange(1.0, 1.0 + D), np.full(D, 0.01), np.zeros(0))
"""Where a network would begin by itself, which is not the prior."""

EXACT = 1e-10


@dataclass(frozen=True)
class Data:
    """A client's sufficient statistics XᵀX/s² and Xᵀy/s² of some observations."""

    count: int
    gram: np.ndarray
    moment: np.ndarray

    def solve(self, prior: QuadraticPrior) -> Posterior:
        """Return the Gaussian with diagonal precision that minimises the free energy."""
        linear = prior.slope + prior.precision * prior.centre + self.moment
        mean = np.linalg.solve(np.diag(prior.precision) + self.gram, linear)
        return Posterior(mean, 1.0 / (prior.precision + np.diag(self.gram)), np.zeros(0))


def make_data(diagonal: bool = True) -> list[Data]:
    """Return the clients' data: 4 to 40 observations each of one linear model."""
    generator = np.random.default_rng(0)
    truth = generator.normal(size=D)
    found = []
    for count in COUNTS:
        design = generator.normal(size=(count, D)) * generator.uniform(0.3, 2.0, size=D)
        if diagonal:
            design = np.linalg.qr(design)[0] * generator.uniform(0.5, 3.0, size=D)
        targets = design @ truth + NOISE * generator.normal(size=count)
        found.append(Data(count, design.T @ design / NOISE**2, design.T @ targets / NOISE**2))
    return found


DATA = make_data()


def posterior_of(shares: Sequence[float], data: Sequence[Data] = DATA) -> Posterior:
    """Return p ∏ L_k to the power of the shares, for diagonal Gram matrices."""
    precision = 1 / SCALE**2 + sum(s * np.diag(d.gram) for s, d in zip(shares, data, strict=True))
    weighted = sum(s * d.moment for s, d in zip(shares, data, strict=True))
    return Posterior(np.asarray(weighted / precision), np.asarray(1.0 / precision))


SCALE, SEED = 2.0, 3
PRIOR = priors.create("cavity", {"prior-scale": SCALE})


def sampled(name: str, **settings: Any) -> Sampling:
    return samplings.create(name, {key.replace("_", "-"): v for key, v in settings.items()})


def training(problems: Sequence[Data]) -> LocalTraining:
    """Return clients that solve their own problem exactly."""

    def solved(task: TrainTask, received: Posterior, beside: Arrays, states: PartStates) -> Trained:
        density = PRIOR.density(received, states.of_part(PRIOR))
        assert isinstance(density, QuadraticPrior)
        problem = problems[task.partition_id]
        own = problem.solve(density)
        return Trained(received, own, beside, problem.count, 1, 0.1, np.zeros(0, bool))

    return solved


def strategy(sampling: Sampling, damping: float = 1.0, **more: Any) -> PosteriorPooling:
    settings = {"damping": damping}
    return PosteriorPooling(
        **arguments(
            rule=pooling_rules.create("factor-changes", settings),
            weighting="train-size",
            sampling=sampling,
            parts=(PRIOR,),
            seed=SEED,
            scale_floor=0.0,
            **{"min_clients": 1, **more},
        )
    )


def factor_federation(
    folder: Path,
    sampling: Sampling,
    problems: Sequence[Data],
    network: Posterior,
    faults: Faults = no_faults,
    order: Any = list,
    **settings: Any,
) -> PartFederation:
    """Return a federation; ``network`` is where a network would begin by itself."""
    return PartFederation(
        folder,
        lambda **given: strategy(sampling, **settings, **given),
        training(problems),
        len(problems),
        PRIOR.first_posterior(network),
        faults,
        order,
    )


def committed(folder: Path, done: Round) -> list[NaturalParameters]:
    """Return the clients' factors as they lie in their folders, changed as the server has told."""
    factors = []
    for k, (last, damping) in enumerate(
        zip(done.state.last_pooled, done.state.damping, strict=True)
    ):
        if not last:
            continue
        kept = Snapshots(folder / "clients" / f"client-{k:06d}", kept=3).at(int(last))
        assert kept is not None
        prefix = f"part.{PRIOR.state_name}."
        arrays = {name.removeprefix(prefix): array for name, array in kept.items()}
        factor = PRIOR.commit(arrays, float(damping))
        factors.append(
            NaturalParameters(factor["factor-weighted-mean"], factor["factor-precision"])
        )
    return factors


def federation(
    folder: Path,
    sampling: Sampling,
    faults: Faults = no_faults,
    data: Sequence[Data] = DATA,
    order: Any = list,
    **settings: Any,
) -> PartFederation:
    return factor_federation(folder, sampling, data, NETWORK, faults, order, **settings)


def random_faults(sampling: Sampling) -> Faults:
    """Return faults of three fifths of all clients asked; one of each round is spared."""
    kinds: tuple[Fault, ...] = ("", "", "down", "lost", "refused", "late")

    def fault(server_round: int, partition_id: int) -> Fault:
        asked = sampling.sample(SEED, server_round, K)
        generator = randomness.generator(0, "faults", server_round)
        drawn = dict(zip(asked, generator.choice(len(kinds), len(asked)), strict=True))
        spared = asked[int(generator.integers(len(asked)))]
        return "" if partition_id == spared else kinds[drawn.get(partition_id, 0)]

    return fault


ALL = sampled("random")
SAMPLINGS = {"all": ALL, "two of five": sampled("random", fraction_train=0.4)}
ROUNDS, FAULTY_ROUNDS = 10, 20


def assert_close(found: Posterior, expected: Posterior, tolerance: float = EXACT) -> None:
    np.testing.assert_allclose(found.variance, expected.variance, rtol=tolerance)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=tolerance, atol=tolerance)


def assert_exact(rounds: Sequence[Round], data: Sequence[Data] = DATA) -> None:
    """Assert that q is p ∏ L_k^(1 − r_k) after each round."""
    left = np.ones(len(data))
    for done in rounds:
        pooled = done.state.last_pooled == done.number
        assert pooled.sum() == len(done.clients) > 0
        left[pooled] *= 1.0 - done.metrics["damping"]
        assert done.posterior.mean.dtype == np.float64
        assert_close(done.posterior, posterior_of((1.0 - left).tolist(), data))


def same(first: Sequence[Round], second: Sequence[Round]) -> bool:
    """Return whether two runs have the same float64 bits after every round."""

    def bits(done: Round) -> list[bytes]:
        arrays = (done.posterior.mean, done.posterior.variance, *done.state.to_arrays().values())
        return [array.tobytes() for array in arrays]

    return [bits(done) for done in first] == [bits(done) for done in second]


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_each_round_gives_the_exact_posterior_of_the_clients_pooled_so_far(
    sampling: Sampling, tmp_path: Path
) -> None:
    rounds = federation(tmp_path, sampling).run(ROUNDS)
    assert [done.number for done in rounds] == list(range(1, ROUNDS + 1))
    assert {done.metrics["damping"] for done in rounds} == {1.0}
    for done in rounds:
        seen = {i for n in range(1, done.number + 1) for i in sampling.sample(SEED, n, K)}
        assert_close(done.posterior, posterior_of([float(k in seen) for k in range(K)]))
    assert_close(rounds[-1].posterior, posterior_of([1.0] * K))


@pytest.mark.parametrize(("name", "damping"), [("all", 1.0), ("two of five", 0.6)])
def test_replies_may_be_lost_refused_or_late(name: str, damping: float, tmp_path: Path) -> None:
    sampling = SAMPLINGS[name]
    faults = random_faults(sampling)
    rounds = federation(tmp_path, sampling, faults, damping=damping).run(FAULTY_ROUNDS)
    assert_exact(rounds)
    happened = {
        fault: [
            (n, k)
            for n in range(1, FAULTY_ROUNDS + 1)
            for k in sampling.sample(SEED, n, K)
            if faults(n, k) == fault
        ]
        for fault in ("down", "lost", "refused", "late")
    }
    assert all(happened.values())
    for done in rounds:
        failed = sum(n == done.number for f in ("down", "lost", "late") for n, _ in happened[f])
        refused = sum(n == done.number for n, _ in happened["refused"])
        assert (done.metrics["failures"], done.metrics["refused"]) == (failed, refused)


@pytest.mark.parametrize("lost_checkpoints", [0, 1])
def test_a_run_that_is_killed_goes_on_exactly(lost_checkpoints: int, tmp_path: Path) -> None:
    sampling, damping = SAMPLINGS["two of five"], 0.6
    faults = random_faults(sampling)
    expected = federation(tmp_path / "whole", sampling, faults, damping=damping).run(8)
    killed = federation(tmp_path / "killed", sampling, faults, damping=damping)
    for number in range(2, 8):
        with pytest.raises(KilledError):
            killed.run(8, killed_after=number, lost_checkpoints=lost_checkpoints)
    rounds = killed.run(8, lost_checkpoints=lost_checkpoints)
    assert_exact(rounds)
    assert same(rounds, expected)


def test_correlated_designs_end_where_variational_inference_on_all_data_does(
    tmp_path: Path,
) -> None:
    data = make_data(diagonal=False)
    run = federation(tmp_path, ALL, random_faults(ALL), data, damping=0.0)
    prior = NaturalParameters(np.zeros(D), np.full(D, 1 / SCALE**2))
    for number in (1, 3, 10, 60):
        done = run.run(number)[-1]
        product = sum(committed(tmp_path, done), start=prior)
        global_one = NaturalParameters.of(done.posterior.mean, done.posterior.variance)
        np.testing.assert_allclose(product.precision, global_one.precision, rtol=EXACT)
        np.testing.assert_allclose(product.weighted_mean, global_one.weighted_mean, rtol=1e-9)
    gram, moment = sum(d.gram for d in data), sum(d.moment for d in data)
    precision = np.diag(np.full(D, 1 / SCALE**2)) + gram
    together = Posterior(np.linalg.solve(precision, moment), 1.0 / np.diag(precision))
    assert_close(done.posterior, together, 1e-3)


def test_a_round_that_would_lose_precision_is_damped_and_its_clients_commit_that(
    tmp_path: Path,
) -> None:
    """Two clients' likelihoods take certainty away from one parameter, and the third one's, which
    gives more than that, is not there in the first round."""
    less = np.array([-0.13, 1.0, 2.0, 0.5])
    grams = (less, less, np.array([1.0, 0.5, 1.0, 3.0]))
    data = [Data(9, np.diag(gram), np.arange(1.0, 1.0 + D) + k) for k, gram in enumerate(grams)]

    def faults(server_round: int, partition_id: int) -> Fault:
        return "lost" if (server_round, partition_id) == (1, 2) else ""

    run = federation(tmp_path, ALL, faults, data, damping=1.0)
    # Of a precision of 1/4 the two would leave −0.01; a tenth of it stays.
    damping = 0.9 * 0.25 / 0.26
    prior = NaturalParameters(np.zeros(D), np.full(D, 1 / SCALE**2))
    for number, expected in ((1, (damping, 1.0)), (2, (1.0, 0.0)), (3, (1.0, 0.0))):
        done = run.run(number)[-1]
        assert done.metrics["damping"] == pytest.approx(expected[0], rel=1e-12)
        assert done.metrics["damped-further"] == expected[1]
        factors = committed(tmp_path, done)
        assert len(factors) == len(done.clients) == (2 if number == 1 else 3)
        if number == 1:
            for factor in factors:
                np.testing.assert_allclose(factor.precision, damping * less, rtol=EXACT)
        product = sum(factors, start=prior)
        global_one = NaturalParameters.of(done.posterior.mean, done.posterior.variance)
        np.testing.assert_allclose(product.precision, global_one.precision, rtol=EXACT)
        np.testing.assert_allclose(product.weighted_mean, global_one.weighted_mean, rtol=1e-9)
    # What the first round has left out came in the second one, since the clients knew of it.
    assert_exact(run.finished, data)
    assert_close(run.finished[1].posterior, posterior_of([1.0] * 3, data))


class Float32(Data):
    """A client that sends float32, as networks do."""

    def solve(self, prior: QuadraticPrior) -> Posterior:
        own = super().solve(prior)
        return Posterior(own.mean.astype(np.float32), own.variance.astype(np.float32), own.point)


def test_the_prior_stays_what_it_was_where_posteriors_are_sent_in_float32(tmp_path: Path) -> None:
    sigma = 4.5e-4
    share = sigma**-2 / np.mean([np.diag(d.gram) for d in DATA]) / K
    data = [Float32(d.count, share * d.gram, share * d.moment) for d in DATA]
    mean, variance = NETWORK.mean.astype(np.float32), NETWORK.variance.astype(np.float32)
    network = Posterior(mean, variance, NETWORK.point)
    faults = random_faults(ALL)

    def run(folder: Path) -> PartFederation:
        return factor_federation(folder, ALL, data, network, faults, damping=0.0)

    killed = run(tmp_path / "killed")
    with pytest.raises(KilledError):
        killed.run(50, killed_after=30)
    done = killed.run(50, lost_checkpoints=1)[-1]
    assert done.posterior.mean.dtype == done.posterior.variance.dtype == np.float32
    assert np.sqrt(done.posterior.variance.mean()) == pytest.approx(sigma, rel=0.5)
    pooled = done.state.unrounded
    assert pooled is not None
    for name in ("mean", "variance"):  # what is sent is that, rounded once
        rounded = getattr(pooled, name).astype(np.float32)
        np.testing.assert_array_equal(rounded, getattr(done.posterior, name))
    factors = sum(committed(tmp_path / "killed", done), NaturalParameters.nothing(D))
    left = NaturalParameters.of(pooled.mean, pooled.variance) - factors
    np.testing.assert_allclose(left.precision, 1 / SCALE**2, rtol=1e-6)
    np.testing.assert_allclose(left.weighted_mean, 0.0, atol=1e-6)
    expected = run(tmp_path / "whole").run(50)[-1]
    assert same([done], [expected])


def test_a_posterior_that_was_moved_after_pooling_is_gone_on_from(tmp_path: Path) -> None:
    state = federation(tmp_path, ALL).run(1)[-1].state
    assert state.unrounded_if_unmoved is not None
    moved = Posterior(state.posterior.mean + 1.0, state.posterior.variance, state.posterior.point)
    assert replace(state, posterior=moved).unrounded_if_unmoved is None
