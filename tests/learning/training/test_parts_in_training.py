"""What parts of a method do to local training, against what can be worked out by hand.

On a single dense layer, so that a step takes a millisecond. With Flipout it has Gaussians, and
batch normalisation's point values beside them.
"""

from functools import cache
from typing import Any

import numpy as np
import pytest
from pydantic import Field

from bfl.federation.parts import Arrays
from bfl.learning.augmentations import augmentations
from bfl.learning.corrections import corrections
from bfl.learning.inferences import inferences
from bfl.learning.models.base import Architecture
from bfl.learning.objectives import Term, Value, objectives
from bfl.learning.optimizers import optimizers
from bfl.learning.priors import priors
from bfl.learning.priors.base import NormalPrior, QuadraticPrior
from bfl.learning.starts import starts
from bfl.learning.training import LocalTask
from bfl.posteriors import Posterior
from bfl.posteriors.divergence import divergence
from bfl.posteriors.natural import NaturalParameters

pytestmark = pytest.mark.usefixtures("tensorflow")

SHAPE, CLASSES, BATCH = (2, 2, 1), 3, 16
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (40, *SHAPE), dtype=np.uint8)
LABELS = RNG.integers(0, CLASSES, 40)
PLAIN: dict[str, Any] = {"momentum": 0.0, "weight-decay": 0.0}


class OneLayer(Architecture):
    """Batch normalisation and a dense layer."""

    normalized: bool = True

    def build(self, inference: Any, image_shape: tuple[int, int, int], classes: int) -> Any:
        from bfl.keras import keras

        images = keras.Input(image_shape)
        features = keras.layers.Flatten()(images)
        if self.normalized:
            features = keras.layers.BatchNormalization(name="norm")(features)
        logits = inference.dense(classes, name="logits", output=True)(features)
        return keras.Model(images, logits)


@cache
def trainer_of(inference: str, optimizer: Any = None, normalized: bool = True, **parts: Any) -> Any:
    from bfl.learning.networks.network import build_network
    from bfl.learning.training.trainer import LocalTrainer

    architecture = OneLayer(normalized=normalized)
    network = build_network(architecture, inferences.create(inference), SHAPE, CLASSES)
    optimizer = optimizer or optimizers.create("sgd", PLAIN)
    return LocalTrainer(network, BATCH, augmentations.create("none"), optimizer, **parts)


def task_of(received: Posterior, **changes: Any) -> LocalTask:
    values: dict[str, Any] = {
        "received": received,
        "prior": NormalPrior(0.0, 1.0),
        "examples": np.arange(40),
        "epochs": 2,
        "learning_rate": 0.05,
        "key_labels": (1, 0),
        "seed": 0,
    }
    return LocalTask(**{**values, **changes})


def posterior_of(network: Any, seed: int, low: float = 0.3, high: float = 1.0) -> Posterior:
    rng = np.random.default_rng(seed)
    manifest = network.manifest
    vectors = (
        rng.normal(size=manifest.gaussian_size),
        rng.uniform(low, high, manifest.gaussian_size) ** 2,
        rng.uniform(0.5, 1.5, manifest.point_size),
    )
    return Posterior(*(vector.astype(np.float32) for vector in vectors))


def train(trainer: Any, task: LocalTask) -> Any:
    return trainer.train(IMAGES, LABELS, task)


# Objectives


def test_proximal_term_alone_is_a_geometric_path_to_what_was_received() -> None:
    """Its gradient is linear: by points µ (w − w₀), by means µ (m − m₀) / (N σ₀²)."""
    mu, rate, examples = 0.8, 0.05, 40
    terms = (objectives.create("proximal", {"proximal-mu": mu}),)
    trainer = trainer_of("flipout", objective=terms)
    network = trainer.network
    received, start = posterior_of(network, 1), posterior_of(network, 2)
    result = train(trainer, task_of(received, start=start))
    assert result.steps == 6
    trained = network.manifest.trainable_points
    assert trained.any()
    assert not trained.all()
    np.testing.assert_allclose(
        result.posterior.point[trained],
        (received.point + (1 - rate * mu) ** 6 * (start.point - received.point))[trained],
        rtol=1e-5,
    )
    # Moving statistics follow the batches and nothing else.
    free = train(trainer_of("flipout"), task_of(received, start=start)).posterior
    np.testing.assert_array_equal(result.posterior.point[~trained], free.point[~trained])
    left = (1 - rate * mu / (examples * received.variance.astype(np.float64))) ** 6
    np.testing.assert_allclose(
        result.posterior.mean, received.mean + left * (start.mean - received.mean), rtol=1e-5
    )


def test_reported_objective_has_all_terms() -> None:
    """At a rate of 0: NLL + KL / N + µ (KL from the received / N + half the squared distance)."""
    terms = (objectives.create("elbo"), objectives.create("proximal", {"proximal-mu": 0.3}))
    trainer = trainer_of("flipout", objective=terms)
    received, start = (posterior_of(trainer.network, seed) for seed in (1, 2))
    result = train(trainer, task_of(received, start=start, learning_rate=0.0))
    gap = (start.point - received.point)[trainer.network.manifest.trainable_points]
    far = divergence(start.mean, start.variance, received.mean, received.variance).value
    expected = result.negative_log_likelihood + result.divergence / 40
    expected += 0.3 * (far / 40 + 0.5 * np.sum(gap**2))
    assert result.objective == pytest.approx(expected, rel=1e-5)
    assert far > 1
    assert np.sum(gap**2) > 0.1


def test_a_proximal_term_holds_a_client_near_what_it_received() -> None:
    moved = []
    for mu in (0.0, 10.0, 1000.0):
        terms = (objectives.create("elbo"), objectives.create("proximal", {"proximal-mu": mu}))
        trainer = trainer_of("flipout", optimizers.create("adam"), objective=terms)
        received = posterior_of(trainer.network, 1)
        result = train(trainer, task_of(received, epochs=60, learning_rate=0.01)).posterior
        shift = [
            result.mean - received.mean,
            np.log(result.variance / received.variance),
            (result.point - received.point)[trainer.network.manifest.trainable_points],
        ]
        moved.append([np.sqrt(np.mean(part**2)) for part in shift])
    free, held, firmly = np.array(moved)
    assert (free > 1.5 * held).all(), moved
    assert (held > 2 * firmly).all(), moved
    assert (firmly < 0.02).all(), moved


def test_parts_that_do_nothing_leave_the_bits() -> None:
    plain = trainer_of("flipout")
    nothing = (objectives.create("elbo"), objectives.create("proximal", {"proximal-mu": 0.0}))
    without = trainer_of("flipout", objective=nothing, correction=corrections.create("none"))
    assert len(without.meme.terms) == 1
    assert without.meme.offsets is None
    task = task_of(posterior_of(plain.network, 1))
    assert train(without, task).posterior.digest() == train(plain, task).posterior.digest()


# Corrections


def scaffold_of(network: Any, option: str) -> tuple[Any, Arrays, Arrays]:
    """Return the correction, with a state and a broadcast as later rounds have them."""
    correction = corrections.create("scaffold", {"scaffold-option": option})
    rng = np.random.default_rng(5)
    trainable = network.manifest.trainable_points
    sizes = {"mean": np.ones(network.manifest.gaussian_size), "point": trainable.astype(float)}
    state = {f"control-{v}": mask * rng.normal(0, 0.3, mask.size) for v, mask in sizes.items()}
    sent = {f"control-{v}": mask * rng.normal(0, 0.3, mask.size) for v, mask in sizes.items()}
    return correction, state, correction.broadcast(sent)


def test_control_variates_are_the_mean_gradient_of_the_path() -> None:
    """Option II, whose path is along gradients and offsets, on an objective whose path is known.

    The proximal term has the gradient µ (w − w₀) by points and µ (m − m₀) / (N σ₀²) by means; the
    offsets drive the client away. Weight decay is a part of the gradient.
    """
    mu, rate, decay = 4.0, 0.05, 0.1
    optimizer = optimizers.create("sgd", {"momentum": 0.0, "weight-decay": decay})
    terms = (objectives.create("proximal", {"proximal-mu": mu}),)
    correction, state, broadcast = scaffold_of(trainer_of("flipout").network, "II")
    trainer = trainer_of("flipout", optimizer, objective=terms, correction=correction)
    received = posterior_of(trainer.network, 1)
    offsets = correction.offsets(state, broadcast, received)
    task = task_of(received, offsets=offsets, learning_rate=rate)
    result = train(trainer, task)
    sent, kept = correction.conclude(state, result.trained(task, result.posterior, broadcast))
    trainable = trainer.network.manifest.trainable_points
    curvature = mu / (40 * received.variance.astype(np.float64))
    for name, pull, moves in (
        ("mean", curvature, np.ones(received.size, bool)),
        ("point", np.full(received.point.size, mu), trainable),
    ):
        before = getattr(received, name).astype(np.float64)
        values, gradients = before.copy(), []
        for _ in range(6):
            gradients.append(pull * (values - before) + decay * values)
            values -= rate * (gradients[-1] + offsets[name])
        np.testing.assert_allclose(
            kept[f"control-{name}"][moves], np.mean(gradients, axis=0)[moves], rtol=1e-3, atol=1e-4
        )
        np.testing.assert_array_equal(kept[f"control-{name}"][~moves], 0.0)
        assert sent[f"control-change-{name}"].dtype == np.float32


def test_the_first_step_is_the_gradient_and_the_offset() -> None:
    """One step from the same place, with and without: the difference is −η times the offset."""
    correction, state, broadcast = scaffold_of(trainer_of("flipout").network, "II")
    plain, corrected = trainer_of("flipout"), trainer_of("flipout", correction=correction)
    received = posterior_of(plain.network, 1)
    offsets = correction.offsets(state, broadcast, received)
    task = task_of(received, offsets=offsets, examples=np.arange(BATCH), epochs=1)
    one, other = (train(trainer, task).posterior for trainer in (plain, corrected))
    np.testing.assert_allclose(other.mean - one.mean, -0.05 * offsets["mean"], atol=1e-6)
    np.testing.assert_allclose(other.point - one.point, -0.05 * offsets["point"], atol=1e-6)
    np.testing.assert_array_equal(other.variance, one.variance)


def test_gradient_over_all_examples_is_that_of_the_mean_over_them() -> None:
    """Without normalisation the mean of the batches' gradients is the gradient: by differences."""
    decay = 0.1
    correction = corrections.create("scaffold", {"scaffold-option": "I"})
    optimizer = optimizers.create("sgd", {"momentum": 0.0, "weight-decay": decay})
    trainer = trainer_of("deterministic", optimizer, normalized=False, correction=correction)
    received = posterior_of(trainer.network, 1)
    zeros = {"mean": np.zeros(0, np.float32), "point": np.zeros(received.point.size, np.float32)}
    examples = np.arange(3, 40)  # the last batch is filled up
    task = task_of(received, offsets=zeros, examples=examples)
    gradient = train(trainer, task).gradient
    assert gradient["mean"].shape == (0,)
    features = IMAGES[examples].reshape(37, 4) / 127.5 - 1.0

    def objective(point: np.ndarray) -> float:
        kernel, bias = point[:12].reshape(4, 3), point[12:]
        logits = features @ kernel + bias
        logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        loss = -logs[np.arange(37), LABELS[examples]].mean()
        return float(loss + 0.5 * decay * np.sum(point**2))

    point = received.point.astype(np.float64)
    assert [p.name for p in trainer.network.manifest.point] == ["logits/kernel", "logits/bias"]
    by_differences = [
        (objective(point + step) - objective(point - step)) / 2e-5 for step in 1e-5 * np.eye(15)
    ]
    np.testing.assert_allclose(gradient["point"], by_differences, rtol=1e-4, atol=1e-6)


def test_the_pass_for_the_gradient_changes_nothing_else() -> None:
    results = []
    for option in ("I", "II"):
        correction, state, broadcast = scaffold_of(trainer_of("flipout").network, option)
        trainer = trainer_of("flipout", correction=correction)
        received = posterior_of(trainer.network, 1)
        offsets = correction.offsets(state, broadcast, received)
        results.append(train(trainer, task_of(received, offsets=offsets)))
    assert results[0].posterior.digest() == results[1].posterior.digest()
    assert results[0].gradient
    assert not results[1].gradient


def test_only_what_a_gradient_moves_is_trainable() -> None:
    for inference in ("deterministic", "flipout"):
        network = trainer_of(inference).network
        named = {p.name: p.trainable for p in network.manifest.point}
        assert {name for name, moves in named.items() if not moves} == {
            "norm/moving_mean",
            "norm/moving_variance",
        }
        assert {"norm/scale", "norm/offset"} <= set(named)


def test_one_trace_serves_all_tasks_of_all_parts() -> None:
    terms = (objectives.create("elbo"), objectives.create("proximal", {"proximal-mu": 1.0}))
    correction, state, broadcast = scaffold_of(trainer_of("flipout").network, "I")
    trainer = trainer_of("flipout", objective=terms, correction=correction)
    gaussians = [posterior_of(trainer.network, seed) for seed in range(4)]
    cavity = priors.create("cavity")
    digests = set()
    for n, received in enumerate(gaussians):
        prior = cavity.density(received, cavity.begin_client(received))
        for density in (prior, NormalPrior(0.0, 1.0 + n)):
            task = task_of(
                received,
                start=gaussians[n - 1],
                prior=density,
                offsets=correction.offsets(state, broadcast, received),
                examples=np.arange(7 + 5 * n),
            )
            digests.add(train(trainer, task).posterior.digest())
    assert len(digests) == 8
    assert trainer.traces == 2  # the steps, and the pass for the gradient


# Priors that are quadratics


def factor_of(size: int, share: float) -> NaturalParameters:
    """Return a factor of up to a share of the precision 1; above 1 cavities are no densities."""
    rng = np.random.default_rng(9)
    precision = rng.uniform(0.1, share, size)
    return NaturalParameters(precision * rng.normal(size=size), precision)


def cavity_of(received: Posterior, factor: NaturalParameters) -> QuadraticPrior:
    state = {"factor-weighted-mean": factor.weighted_mean, "factor-precision": factor.precision}
    return priors.create("cavity").density(received, state)


def divergence_and_gradient(network: Any, q: Posterior, prior: Any) -> tuple[float, list[Any]]:
    """Return the divergence, and its gradients by means and by untransformed scales, (D,) each."""
    from bfl.keras import tf

    network.load(q)
    network.set_prior(prior)
    gaussian = network._gaussian
    with tf.GradientTape() as tape:
        network.logits(np.zeros((1, *SHAPE), np.float32), np.array([1, 2], np.int32), training=True)
        value = network.divergence()
    sources = [p.value for p in gaussian], [p.untransformed_scale for p in gaussian]
    found = tape.gradient(value, sources)
    return float(value), [np.concatenate([g.numpy().ravel() for g in each]) for each in found]


def test_divergence_from_a_cavity_that_is_a_density() -> None:
    """Against the closed form; and against an integral of one dimension, to trust the form."""
    network = trainer_of("flipout").network
    received, q = (posterior_of(network, seed) for seed in (1, 2))
    prior = cavity_of(received, factor_of(received.size, 0.8))
    assert (prior.precision > 0).all()
    value, _ = divergence_and_gradient(network, q, prior)
    mean = prior.centre + prior.slope / prior.precision
    expected = divergence(q.mean, q.variance, mean, 1 / prior.precision).value
    assert value == pytest.approx(expected, rel=1e-5)
    theta = np.linspace(-12, 12, 200_001)
    numerically = 0.0
    for d in range(received.size):
        log_q = -0.5 * (theta - q.mean[d]) ** 2 / q.variance[d] - 0.5 * np.log(q.variance[d])
        log_p = -0.5 * (theta - mean[d]) ** 2 * prior.precision[d]
        log_p += 0.5 * np.log(prior.precision[d])
        density = np.exp(log_q - 0.5 * np.log(2 * np.pi))
        numerically += np.trapezoid(density * (log_q - log_p), theta)
    assert value == pytest.approx(numerically, rel=1e-4)


@pytest.mark.parametrize("share", [0.8, 30.0])
def test_gradient_from_a_cavity_whatever_its_precisions(share: float) -> None:
    """∂/∂µ = Λ (µ − c) − s and ∂/∂σ = Λ σ − 1/σ; some precisions negative, and one 0."""
    network = trainer_of("flipout").network
    received, q = (posterior_of(network, seed) for seed in (1, 2))
    prior = cavity_of(received, factor_of(received.size, share))
    precision = prior.precision.copy()
    precision[0] = 0.0
    prior = QuadraticPrior(prior.centre, prior.slope, precision)
    assert (precision < 0).any() == (share > 1)
    value, (by_mean, by_rho) = divergence_and_gradient(network, q, prior)
    expected = precision * (q.mean - prior.centre) - prior.slope
    np.testing.assert_allclose(by_mean, expected, rtol=1e-4, atol=1e-5)
    sigma = np.sqrt(q.variance.astype(np.float64))
    slope = -np.expm1(-sigma)  # of softplus
    np.testing.assert_allclose(
        by_rho, (precision * sigma - 1 / sigma) * slope, rtol=1e-4, atol=1e-5
    )
    # Values are those of the pure form, but for a constant that no posterior changes.
    other = posterior_of(network, 3)
    difference = divergence_and_gradient(network, other, prior)[0] - value

    def pure(p: Posterior) -> float:
        variance, shift = p.variance.astype(np.float64), p.mean - prior.centre.astype(np.float64)
        crossed = 0.5 * prior.precision * (np.square(shift) + variance) - prior.slope * shift
        return float(crossed.sum()) - 0.5 * float(np.log(variance).sum())

    assert difference == pytest.approx(pure(other) - pure(q), rel=1e-4)


# Partitioned variational inference


def test_a_cavity_without_a_factor_is_the_previous_global_posterior() -> None:
    trainer = trainer_of("flipout")
    received = posterior_of(trainer.network, 1)
    results = []
    for name in ("cavity", "previous-global"):
        prior = priors.create(name)
        density = prior.density(received, prior.begin_client(received))
        results.append(train(trainer, task_of(received, prior=density, epochs=10)))
    for vector in ("mean", "variance", "point"):
        one, other = (getattr(result.posterior, vector) for result in results)
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert results[0].divergence == pytest.approx(results[1].divergence, rel=1e-4)
    assert np.abs(results[0].posterior.mean - received.mean).max() > 0.05


class Conjugate(Term):
    """Data that see every parameter with Gaussian noise: ½ a (θ − y)², and the divergence."""

    precision: float = Field(1.0)
    seen: float = Field(0.0)

    def value(self, step: Any, inputs: Any, examples: Any) -> Value:
        from bfl.keras import tf

        mean, deviation = step.network._mean_and_deviation()
        error = tf.reduce_sum(tf.square(mean - self.seen) + tf.square(deviation))
        return Value(shared=0.5 * self.precision * error + step.divergence)


def test_trained_factors_multiply_to_the_exact_posterior() -> None:
    """Two clients with cavities, trained by descent: after each round q = p Π N(y_k, 1/a_k)."""
    data = (1.5, 2.0), (3.0, -0.4)
    clients = [
        trainer_of("flipout", normalized=False, objective=(Conjugate(precision=a, seen=y),))
        for a, y in data
    ]
    network, prior = clients[0].network, priors.create("cavity")
    size = network.manifest.gaussian_size
    start = starts.create("initial-network")
    natural = NaturalParameters(np.zeros(size), np.ones(size))  # p = N(0, 1)
    states = [prior.begin_client(posterior_of(network, 0)) for _ in clients]
    begun = [start.begin_client(posterior_of(network, 0)) for _ in clients]
    for _ in range(3):
        mean, variance = natural.moments()
        received = Posterior(
            mean.astype(np.float32), variance.astype(np.float32), np.zeros(0, np.float32)
        )
        changes = []
        for k, trainer in enumerate(clients):
            task = task_of(
                received,
                prior=prior.density(received, states[k]),
                start=start.begin(begun[k], received, lambda: network.initial_posterior(0)),
                examples=np.arange(1),
                epochs=400,
                learning_rate=0.1,
            )
            result = train(trainer, task)
            trained = result.trained(task, result.posterior, {})
            states[k] = prior.commit(prior.conclude(states[k], trained)[1], 1.0)
            begun[k] = start.commit(start.conclude(begun[k], trained)[1], 1.0)
            sent = NaturalParameters.of(result.posterior.mean, result.posterior.variance)
            changes.append(sent - NaturalParameters.of(received.mean, received.variance))
        for change in changes:
            natural = natural + change
        np.testing.assert_allclose(natural.precision, 1 + 1.5 + 3.0, rtol=1e-3)
        np.testing.assert_allclose(natural.weighted_mean, 1.5 * 2.0 - 3.0 * 0.4, atol=5e-3)
        for state, (a, y) in zip(states, data, strict=True):
            np.testing.assert_allclose(state["factor-precision"], a, rtol=2e-3)
            np.testing.assert_allclose(state["factor-weighted-mean"], a * y, atol=5e-3)
