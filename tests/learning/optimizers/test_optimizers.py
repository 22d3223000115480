"""Optimizers against the formulas of their paper and of PyTorch, in NumPy."""

import numpy as np
import pytest

from bfl.learning.optimizers import TrainedVariable, optimizers

pytestmark = pytest.mark.usefixtures("tensorflow")

STEPS = 12
START = (
    np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32),
    np.random.default_rng(1).normal(size=7).astype(np.float32),
)
CURVATURE = tuple(
    np.random.default_rng(n).uniform(0.01, 5, s.shape).astype(np.float32)
    for n, s in enumerate(START)
)
RATES = np.linspace(0.05, 0.01, STEPS).astype(np.float32)
"""The rate changes: a velocity that holds the rates of the past would show."""


def trained(optimizer, *, scales=(), kernels=()):
    from bfl.keras import tf

    return [
        TrainedVariable(
            tf.Variable(start),
            tuple(tf.Variable(tf.zeros_like(start)) for _ in optimizer.slots),
            scale=n in scales,
            kernel=n in kernels,
        )
        for n, start in enumerate(START)
    ]


def run(optimizer, variables):
    """Take the steps in one traced graph, on gradients c θ; return the values after each."""
    from bfl.keras import tf

    @tf.function
    def step(number, rate):
        gradients = [c * t.variable for c, t in zip(CURVATURE, variables, strict=True)]
        optimizer.step(variables, gradients, number, rate)

    values = []
    for number, rate in enumerate(RATES):
        step(tf.constant(number), tf.constant(rate))
        values.append([t.variable.numpy().copy() for t in variables])
    return values


def adam_by_hand(n, decay=0.0):
    theta = START[n].astype(np.float64)
    first, second = np.zeros_like(theta), np.zeros_like(theta)
    for step, rate in enumerate(RATES.astype(np.float64), start=1):
        gradient = CURVATURE[n] * theta + decay * theta
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        # Kingma and Ba (2015), end of section 2: ε beside the uncorrected moment.
        corrected = rate * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        theta = theta - corrected * first / (np.sqrt(second) + 1e-7)
        yield theta, (first, second)


def descent_by_hand(n, momentum, decay):
    """The update of ``torch.optim.SGD`` as its documentation writes it, dampening 0."""
    theta = START[n].astype(np.float64)
    buffer = None
    for rate in RATES.astype(np.float64):
        gradient = CURVATURE[n] * theta + decay * theta
        buffer = gradient if buffer is None else momentum * buffer + gradient
        theta = theta - rate * buffer
        yield theta, (buffer,)


def assert_follows(optimizer, by_hand, **which):
    variables = trained(optimizer, **which)
    values = run(optimizer, variables)
    for n, variable in enumerate(variables):
        expected = list(by_hand(n))
        for actual, (theta, _) in zip([v[n] for v in values], expected, strict=True):
            np.testing.assert_allclose(actual, theta, rtol=1e-4, atol=1e-5)
        for slot, kept in zip(variable.slots, expected[-1][1], strict=True):
            np.testing.assert_allclose(slot.numpy(), kept, rtol=1e-4, atol=1e-5)


def test_adam_is_that_of_the_paper():
    assert_follows(optimizers.create("adam"), adam_by_hand)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_descent_is_that_of_pytorch(momentum, decay):
    settings = {"momentum": momentum, "weight-decay": decay}
    optimizer = optimizers.create("sgd", settings)
    assert_follows(optimizer, lambda n: descent_by_hand(n, momentum, decay))


@pytest.mark.parametrize(
    ("name", "of", "first", "second"),
    [
        *((name, "values", 0.3, 0.0) for name in ("adam", "sgd")),
        *((name, "everything", 0.3, 0.3) for name in ("adam", "sgd")),
        ("sgd", "kernels", 0.0, 0.3),
    ],
)
def test_weight_decay_is_a_part_of_the_gradient_of_what_decays(name, of, first, second):
    """As in ``torch.optim.Adam``, and not as in AdamW; scales, biases and norms on demand."""
    optimizer = optimizers.create(name, {"weight-decay": 0.3, "weight-decay-of": of})
    by_hand = {"adam": adam_by_hand, "sgd": lambda n, decay: descent_by_hand(n, 0.9, decay)}[name]
    which = {"kernels" if of == "kernels" else "scales": (1,)}
    assert_follows(optimizer, lambda n: by_hand(n, second if n == 1 else first), **which)
