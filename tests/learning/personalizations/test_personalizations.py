"""Personal models beside the meme, against steps made by hand and against plain training."""

from functools import cache
from typing import Any

import numpy as np
import one_layer
import pytest
from one_layer import BATCH, CLASSES, IMAGES, LABELS, PLAIN, SHAPE, OneLayer, task_of

from bfl.learning.augmentations import augmentations
from bfl.learning.inferences import inferences
from bfl.learning.optimizers import optimizers
from bfl.learning.personalizations import personalizations
from bfl.learning.training import PersonalTask
from bfl.posteriors import Posterior
from bfl.posteriors.posterior import VECTORS

pytestmark = pytest.mark.usefixtures("tensorflow")

COUNT = len(IMAGES)
INPUTS = np.concatenate([IMAGES.reshape(COUNT, 4) / 127.5 - 1, np.ones((COUNT, 1))], axis=1)
MEME_RATE, PERSONAL_RATE = 2.0, 0.5
"""The meme's step is so large that what it says before and after it differs."""


def network_of(inference: str, role: str, hidden: tuple[int, ...] = ()) -> Any:
    from bfl.learning.networks.network import build_network

    architecture = OneLayer(normalized=False, hidden=hidden)
    return build_network(architecture, inferences.create(inference), SHAPE, CLASSES, role=role)


@cache
def trainer_of(
    name: str,
    meme: str = "deterministic",
    hidden: tuple[int, ...] = (),
    batch: int = BATCH,
    optimizer: str = "sgd",
) -> Any:
    """Return a trainer of both models, or with an empty name of the meme alone."""
    from bfl.learning.training.trainer import LocalTrainer, PersonalNetwork

    created = optimizers.create(optimizer, PLAIN)
    both = None
    if name:
        both = PersonalNetwork(
            personalizations.create(name),  # type: ignore[arg-type]
            network_of("deterministic", "personal", hidden),
            created,
            network_of("deterministic", "mean"),
        )
    return LocalTrainer(
        network_of(meme, "meme"), batch, augmentations.create("none"), created, personal=both
    )


def start_of(network: Any, seed: int) -> Posterior:
    return one_layer.posterior_of(network, seed, low=0.1, high=0.1)


def arrays_of(posterior: Posterior) -> dict[str, Any]:
    return {name: getattr(posterior, name) for name in VECTORS}


def train(trainer: Any, *, epochs: int = 2, state: Any = None, round_: int = 1) -> Any:
    personal = trainer.companion and PersonalTask(
        state=arrays_of(start_of(trainer.companion.network, 2)) if state is None else state,
        seed=5,
        learning_rate=PERSONAL_RATE,
        keeps_optimizer=True,
    )
    task = task_of(
        start_of(trainer.network, 1),
        epochs=epochs,
        learning_rate=MEME_RATE,
        key_labels=(round_, 0),
        personal=personal,
    )
    return one_layer.train(trainer, task)


def trained_alone(hidden: tuple[int, ...] = ()) -> Any:
    """Return the personal model's points after plain training with its rate."""
    trainer = one_layer.trainer_of("deterministic", normalized=False, hidden=hidden)
    task = task_of(start_of(trainer.network, 2), learning_rate=PERSONAL_RATE)
    return one_layer.train(trainer, task).posterior.point


# One step by hand: a linear softmax, all examples in one batch.


def probabilities(point: Any) -> Any:
    logits = INPUTS @ point.astype(np.float64).reshape(5, CLASSES)
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def gradient(point: Any, soft: Any, share: float) -> Any:
    """Return that of (1 − s) CE + s KL[soft ‖ softmax(z)], a mean over the examples."""
    own = probabilities(point)
    by_logits = (1 - share) * (own - np.eye(CLASSES)[LABELS]) + share * (own - soft)
    return (INPUTS.T @ by_logits / COUNT).ravel()


def test_distillation_takes_the_meme_after_its_step() -> None:
    """Yang et al. (2023), Eq. 4.2 and Algorithm 1, lines 6 to 8."""
    trainer = trainer_of("distillation", batch=COUNT)
    result = train(trainer, epochs=1)
    meme, own = start_of(trainer.network, 1).point, start_of(trainer.companion.network, 2).point
    after = meme - MEME_RATE * gradient(meme, 0, 0.0)
    np.testing.assert_allclose(result.posterior.point, after, atol=1e-5)
    expected, early = (
        own - PERSONAL_RATE * gradient(own, probabilities(taught), 0.5) for taught in (after, meme)
    )
    np.testing.assert_allclose(result.personal["point"], expected, atol=1e-5)
    assert np.abs(expected - early).max() > 1e-3


def test_mutual_distillation_takes_what_both_said_before() -> None:
    """Yang et al. (2023), Eq. 2.5; Shen et al. (2020)."""
    trainer = trainer_of("mutual-distillation", batch=COUNT)
    result = train(trainer, epochs=1)
    meme, own = start_of(trainer.network, 1).point, start_of(trainer.companion.network, 2).point
    expected = meme - MEME_RATE * gradient(meme, probabilities(own), 0.5)
    np.testing.assert_allclose(result.posterior.point, expected, atol=1e-5)
    expected = own - PERSONAL_RATE * gradient(own, probabilities(meme), 0.5)
    np.testing.assert_allclose(result.personal["point"], expected, atol=1e-5)


# Against plain training, bit for bit


def test_alone_the_meme_stays_where_it_began() -> None:
    trainer = trainer_of("alone")
    result = train(trainer)
    np.testing.assert_array_equal(result.personal["point"], trained_alone())
    assert result.posterior.digest() == start_of(trainer.network, 1).digest()


@pytest.mark.slow
@pytest.mark.parametrize("meme", ["deterministic", "flipout"])
def test_a_meme_that_does_not_learn_from_personal_models_has_the_same_bits(meme: str) -> None:
    """Whatever these are: nothing of a client's own architecture is in what it sends."""
    plain = train(trainer_of("", meme))
    result = train(trainer_of("distillation", meme, (7, 5)))
    assert result.posterior.digest() == plain.posterior.digest()
    assert (result.objective, result.divergence) == (plain.objective, plain.divergence)
    mutual = train(trainer_of("mutual-distillation", meme))
    assert mutual.posterior.digest() != plain.posterior.digest()


def test_a_gaussian_meme_teaches_at_its_mean() -> None:
    """Of variances next to 0 it says what a network of its means says."""
    trainer = trainer_of("distillation", "flipout", batch=COUNT)
    received = start_of(trainer.network, 1)
    own = start_of(trainer.companion.network, 2)
    result = train(trainer, epochs=1)
    soft = probabilities(result.posterior.mean)
    expected = own.point - PERSONAL_RATE * gradient(own.point, soft, 0.5)
    np.testing.assert_allclose(result.personal["point"], expected, atol=1e-5)
    assert received.size == 15


# State


def test_a_personal_model_begins_by_itself_and_goes_on_from_what_was_kept() -> None:
    trainer = trainer_of("distillation", optimizer="adam")
    first = train(trainer, state={})
    assert set(first.personal) == {
        *VECTORS,
        "optimizer-first-moment",
        "optimizer-second-moment",
        "optimizer-steps",
    }
    assert int(first.personal["optimizer-steps"]) == first.steps == 6
    second = train(trainer, state=first.personal, round_=2)
    assert int(second.personal["optimizer-steps"]) == 12
    again = train(trainer, state=first.personal, round_=2)
    for name, array in second.personal.items():
        np.testing.assert_array_equal(array, again.personal[name])
    assert np.abs(second.personal["point"] - first.personal["point"]).max() > 0
    assert trainer.traces == 1
