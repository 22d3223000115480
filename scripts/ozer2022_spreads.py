"""Clients of Ozer et al. (2022) and their spreads as the authors' code trains and pools them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating]
Sizes = npt.NDArray[np.int64]

CLASSES = {
    "fmnist": (6000,) * 10,
    "cifar10": (5000,) * 10,
    "svhn": (4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659),
}
"""Training examples of each class, in the order of the labels."""

WEIGHTS = {
    name: features * 120 + 120 * 84 + 84 * 10
    for name, features in (("fmnist", 256), ("cifar10", 400), ("svhn", 400))
}
"""D: the weights of the three dense layers, whose biases and whose convolutions are points."""

SEEDS = range(5)
ROUNDS = {10: 50, 100: 500}
SAMPLED, EPOCHS, BATCH, CONCENTRATION, LEAST = 10, 10, 64, 0.5, 10
RATE, MOMENTUM, DECAY = np.float32(0.01), np.float32(0.9), np.float32(1e-5)
BEGIN, CLAMP = -9.0, 8.0


# ------------------------------------------------------------------------------ the clients


def client_sizes(generator: np.random.RandomState, classes: Sequence[int], clients: int) -> Sizes:
    """Return the clients' numbers of examples, (K,), with the draws of the balanced partition.

    Shuffles are made for the draws that they take alone.
    """
    share = sum(classes) / clients
    while True:
        sizes = np.zeros(clients, np.int64)
        for count in classes:
            generator.shuffle(np.arange(count))
            parts = generator.dirichlet(np.full(clients, CONCENTRATION)) * (sizes < share)
            cuts = (np.cumsum(parts / parts.sum()) * count).astype(int)[:-1]
            sizes += np.diff([0, *cuts, count])
        if sizes.min() >= LEAST:
            break
    for size in sizes:
        generator.shuffle(list(range(size)))
    return sizes


def trained_sizes(seed: int, classes: Sequence[int], clients: int) -> Sizes:
    """Return the examples of those who train, in the order of their pooling, (rounds, 10)."""
    generator = np.random.RandomState(seed)

    def orders() -> list[npt.NDArray[np.int64]]:
        orders = [np.arange(clients) for _ in range(ROUNDS[clients])]
        for order in orders:
            generator.shuffle(order)
        return orders

    # With 100 clients all rounds' are drawn before the partition, with 10 each in its round.
    before = orders() if clients > SAMPLED else None
    sizes = client_sizes(generator, classes, clients)
    return np.stack([sizes[order[:SAMPLED]] for order in before or orders()])


# ------------------------------------------------------------------------- local training


def trained(
    alpha: Array, examples: Sizes, *, clamp: bool, batch: int = BATCH, temperature: float = 1.0
) -> Array:
    """Return the log-variances after a round's local epochs, float32 in the shape of ``examples``.

    Each step is PyTorch's, in float32: g ← g + λα, v ← mv + g, α ← α − ηv, the velocity v
    beginning at 0, with g the gradient of T KL[N(μ, exp α) ‖ N(0, 1)] / N by α,
    ½ T (exp α − 1) / N, or 0 where α lies outside the clamp. float32 matters: at 9 a step of weight
    decay is some nine of its spacings, and rounding makes it 2 % smaller.

    Args:
        alpha: Log-variances, of a shape that broadcasts to that of ``examples``.
        examples: N, the clients' examples.
        clamp: Whether they are clamped in the forward pass.
        batch: Examples in a batch; the last one of an epoch may have fewer.
        temperature: T, by which the divergence counts; 1 in the code.
    """
    shape = examples.shape
    value = np.broadcast_to(alpha, shape).astype(np.float32).ravel()
    count = examples.astype(np.float32).ravel()
    steps = (EPOCHS * -(-examples // batch)).ravel()
    # Those with the most steps first: who has made all of theirs is cut off behind.
    order = np.argsort(-steps, kind="stable")
    value, half = value[order], (np.float32(0.5 * temperature) / count)[order]
    velocity = np.zeros_like(value)
    left = np.searchsorted(-steps[order], -np.arange(steps.max()), side="left")
    for active in left:
        here = value[:active]
        gradient = (np.exp(here) - np.float32(1)) * half[:active]
        if clamp:
            gradient *= here >= -CLAMP
        velocity[:active] = MOMENTUM * velocity[:active] + (gradient + DECAY * here)
        here -= RATE * velocity[:active]
    result = np.empty_like(value)
    result[order] = value
    return result.reshape(shape)


# ------------------------------------------------------------------------------- the rules

Rule = Callable[[Array, Array], Array]
"""Takes log-variances (..., K) and weights (..., K), gives the pooled log-variances (...,)."""


def variances(alpha: Array) -> Array:
    """Return the variances as the code reads log-variances, clamped."""
    return np.exp(np.clip(alpha, -CLAMP, CLAMP))


def partial_sums(terms: Array) -> Array:
    """Return the logarithm of a sum of which every partial sum is clamped before it is added to."""
    total = terms[..., 0]
    for term in np.moveaxis(terms[..., 1:], -1, 0):
        total = np.maximum(total, math.exp(-CLAMP)) + term
    return np.log(total)


AS_CODED: Mapping[str, Rule] = {
    "EAA": lambda a, w: partial_sums(w * variances(a)),
    "GAA": lambda a, w: partial_sums(w**2 * variances(a)),
    "AALV": lambda a, w: (w * a).sum(-1),  # the only one whose log-variances are not clamped
    "PPA": lambda a, w: np.log((w * variances(a)).sum(-1)),
    "CF": lambda a, w: np.log(w.max(-1) / (w / variances(a)).sum(-1)),
}


def log_of_sum(alpha: Array, weights: Array) -> Array:
    """Return log Σ w exp(α), however small or large the exponentials are."""
    greatest = alpha.max(-1, keepdims=True)
    total = (weights * np.exp(alpha - greatest)).sum(-1)
    return np.asarray(np.log(total) + greatest[..., 0])


AS_WRITTEN: Mapping[str, Rule] = {
    "EAA": log_of_sum,
    "GAA": lambda a, w: log_of_sum(a, w**2),
    "AALV": lambda a, w: (w * a).sum(-1),
    "PPA": log_of_sum,
    "CF": lambda a, w: np.log(w.max(-1)) - log_of_sum(-a, w),
}
