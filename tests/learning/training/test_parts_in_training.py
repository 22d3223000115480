"""What parts of a method do to local training, against what can be worked out by hand."""

from typing import Any

import numpy as np
import pytest
from one_layer import IMAGES, LABELS, PLAIN, posterior_of, task_of, train, trainer_of
from scipy import stats

from bfl.configuration import resolve
from bfl.errors import ConfigurationError
from bfl.federation.parts import Arrays
from bfl.learning.corrections import corrections
from bfl.learning.objectives import Step, objectives
from bfl.learning.optimizers import optimizers
from bfl.learning.priors import NormalPrior, priors
from bfl.learning.training.trainer import LocalTrainer
from bfl.posteriors.divergence import divergence

pytestmark = pytest.mark.usefixtures("tensorflow")


# Objectives


def test_numbers_have_gaussian_noise() -> None:
    from bfl.keras import tf

    generator = np.random.default_rng(0)
    outputs = generator.normal(size=(6, 2)).astype(np.float32)
    numbers = generator.normal(size=6).astype(np.float32)
    weights = np.array([1, 1, 1, 1, 0, 0], np.float32)
    network: Any = None
    step = Step(network, tf.constant(outputs), tf.constant(numbers), tf.constant(weights))
    deviations = np.sqrt(np.log1p(np.exp(outputs[:, 1])) + 1e-6)
    each = -stats.norm.logpdf(numbers, outputs[:, 0], deviations)
    np.testing.assert_allclose(step.negative_log_likelihood, each[:4].sum(), rtol=1e-5)


def test_balanced_classes_have_the_same_share_of_the_likelihood() -> None:
    """The mean over classes of their examples' mean loss, with point weights that do not move."""
    trainer = trainer_of("deterministic", normalized=False)
    received, examples = posterior_of(trainer.network, 1), np.flatnonzero(LABELS < 2)[:9]
    kernel, bias = received.point[:12].reshape(4, 3), received.point[12:]
    logits = (IMAGES[examples].reshape(-1, 4) / 127.5 - 1.0) @ kernel + bias
    each = -(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))
    losses, own = each[np.arange(9), LABELS[examples]], LABELS[examples]
    expected = np.mean([losses[own == label].mean() for label in (0, 1)])
    found = [
        train(trainer, task_of(received, examples=examples, learning_rate=0.0, balanced=balanced))
        for balanced in (True, False)
    ]
    assert found[0].negative_log_likelihood == pytest.approx(expected, rel=1e-5)
    assert found[1].negative_log_likelihood == pytest.approx(losses.mean(), rel=1e-5)
    assert abs(losses.mean() - expected) > 1e-3
    # Also where a batch has one example, of which a weight must not cancel.
    alone = LocalTrainer(trainer.network, 1, trainer.augmentation, optimizers.create("sgd", PLAIN))
    task = task_of(received, examples=examples, learning_rate=1e-4, epochs=1, balanced=True)
    moved = (bias - train(alone, task).posterior.point[12:]) / 1e-4 / 9
    wrong = np.exp(-each) - np.eye(3)[own]
    np.testing.assert_allclose(moved, (4.5 / np.bincount(own)[own]) @ wrong / 9, atol=2e-3)
    with pytest.raises(ConfigurationError, match="class-weights"):
        resolve({"class-weights": "balanced", "example-privacy": "dp-sgd", "model": "mlp"})


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


def test_norms_that_are_not_squared_pull_as_strongly_from_near_as_from_far() -> None:
    """FedBE's code: each kernel and scale goes µ/2 times the rate along a line; nothing else moves.

    From what was received itself, where a norm has no gradient, nothing moves at all.
    """
    mu, rate = 0.8, 0.05
    settings = {"proximal-mu": mu, "proximal-distance": "norms"}
    terms = (objectives.create("proximal", settings),)
    trainer = trainer_of("deterministic", objective=terms)
    manifest = trainer.network.manifest
    received, start = posterior_of(trainer.network, 1), posterior_of(trainer.network, 2)
    moved = train(trainer, task_of(received, start=start)).posterior.point
    stayed = train(trainer, task_of(received)).posterior.point
    trained = manifest.trainable_points
    np.testing.assert_array_equal(stayed[trained], received.point[trained])
    vectors = (manifest.split(v, gaussian=False) for v in (moved, start.point, received.point))
    held = []
    for parameter, after, before, target in zip(manifest.point, *vectors, strict=True):
        if not parameter.trainable:
            continue
        way = target - before
        far = np.linalg.norm(way)
        if parameter.name.endswith(("/kernel", "/scale")):
            assert far > 6 * rate * mu / 2, "or it would arrive"
            expected = before + 6 * rate * mu / 2 * way / far
            held.append(parameter.name)
        else:
            expected = before
        np.testing.assert_allclose(after, expected, rtol=1e-5)
    assert held == ["norm/scale", "logits/kernel"]


@pytest.mark.parametrize("decay", [1.0, 0.5])
def test_a_rate_may_fall_from_step_to_step(decay: float) -> None:
    """Six steps of η γ^t along a linear gradient; with 1 the bits are those without."""
    mu, rate = 0.8, 0.05
    terms = (objectives.create("proximal", {"proximal-mu": mu}),)
    trainer = trainer_of("deterministic", objective=terms, rate_decay=decay)
    received, start = posterior_of(trainer.network, 1), posterior_of(trainer.network, 2)
    task = task_of(received, start=start)
    result = train(trainer, task).posterior
    trained = trainer.network.manifest.trainable_points
    left = np.prod([1 - rate * decay**t * mu for t in range(6)])
    expected = received.point + left * (start.point - received.point)
    np.testing.assert_allclose(result.point[trained], expected[trained], rtol=1e-5)
    plain = train(trainer_of("deterministic", objective=terms), task).posterior
    assert (result.digest() == plain.digest()) == (decay == 1.0)


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


@pytest.mark.parametrize("name", objectives.names())
def test_a_term_trains_to_the_same_bits_and_is_traced_once(name: str) -> None:
    terms = tuple(objectives.create(word) for word in dict.fromkeys(("elbo", name)))
    trainer = trainer_of("flipout", objective=terms)
    tasks = [task_of(posterior_of(trainer.network, seed)) for seed in (1, 2, 1)]
    first, other, again = (train(trainer, task) for task in tasks)
    for result in (first, other):
        assert np.isfinite(result.objective)
        result.posterior.check(like=tasks[0].received)
    assert first.posterior.digest() == again.posterior.digest() != other.posterior.digest()
    assert trainer.traces == 1
    plain = train(trainer_of("flipout"), tasks[0])
    assert (first.posterior.digest() == plain.posterior.digest()) == (name == "elbo")


def test_parts_that_do_nothing_leave_the_bits() -> None:
    plain = trainer_of("flipout")
    nothing = (objectives.create("elbo"), objectives.create("proximal", {"proximal-mu": 0.0}))
    without = trainer_of("flipout", objective=nothing, correction=corrections.create("none"))
    assert len(without.learner.terms) == 1
    assert without.learner.offsets is None
    task = task_of(posterior_of(plain.network, 1))
    assert train(without, task).posterior.digest() == train(plain, task).posterior.digest()


# Corrections


def scaffold_of(network: Any) -> tuple[Any, Arrays, Arrays]:
    """Return the correction, with a state and a broadcast as later rounds have them."""
    correction = corrections.create("scaffold")
    rng = np.random.default_rng(5)
    trainable = network.manifest.trainable_points
    sizes = {"mean": np.ones(network.manifest.gaussian_size), "point": trainable.astype(float)}
    state = {f"control-{v}": mask * rng.normal(0, 0.3, mask.size) for v, mask in sizes.items()}
    sent = {f"control-{v}": mask * rng.normal(0, 0.3, mask.size) for v, mask in sizes.items()}
    return correction, state, correction.broadcast(sent)


def test_control_variates_are_the_mean_gradient_of_the_path() -> None:
    """Along gradients and offsets, on an objective whose path is known.

    The proximal term has the gradient µ (w − w₀) by points and µ (m − m₀) / (N σ₀²) by means; the
    offsets drive the client away. Weight decay is a part of the gradient.
    """
    mu, rate, decay = 4.0, 0.05, 0.1
    optimizer = optimizers.create("sgd", {"momentum": 0.0, "weight-decay": decay})
    terms = (objectives.create("proximal", {"proximal-mu": mu}),)
    correction, state, broadcast = scaffold_of(trainer_of("flipout").network)
    trainer = trainer_of("flipout", optimizer, objective=terms, correction=correction)
    received = posterior_of(trainer.network, 1)
    offsets = correction.offsets(state, broadcast, received)
    task = task_of(received, offsets=offsets, learning_rate=rate)
    result = train(trainer, task)
    sent, kept = correction.conclude(state, result.to_trained(task, result.posterior, broadcast))
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


def test_one_trace_serves_all_tasks_of_all_parts() -> None:
    terms = (objectives.create("elbo"), objectives.create("proximal", {"proximal-mu": 1.0}))
    correction, state, broadcast = scaffold_of(trainer_of("flipout").network)
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
    assert trainer.traces == 1
