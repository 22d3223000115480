"""Plain networks against their sources' numbers and a forward pass written out in NumPy."""

from typing import Any

import numpy as np
import pytest
from small_network import build

pytestmark = pytest.mark.usefixtures("tensorflow")

CIFAR, FASHION, SMALLEST = (32, 32, 3), (28, 28, 1), (16, 16, 1)


def shapes(network: Any) -> dict[str, tuple[int, ...]]:
    return {p.name: p.shape for p in network.manifest}


@pytest.mark.parametrize(
    ("word", "shape", "size"),
    [
        ("cnn1", CIFAR, 52_202),  # 456 + 2,416 of the convolutions, 400 x 120 + 120, 120 x 10 + 10
        ("convnet", CIFAR, 122_570),
        ("convolutional", CIFAR, 62_006),  # Li et al.'s: 456 + 2,416 + 48,120 + 10,164 + 850
        ("mlp", FASHION, 199_210),  # as McMahan et al. (2017) give it
        ("mlp", (32, 32, 1), 247_210),
        ("mlp", CIFAR, 656_810),
    ],
)
def test_sizes(word: str, shape: tuple[int, int, int], size: int) -> None:
    assert build(word, "deterministic", shape).manifest.point_size == size
    manifest = build(word, "flipout", shape).manifest
    assert (manifest.gaussian_size, manifest.point_size) == (size, 0)


def test_extra_convolutions_keep_the_features_as_they_are() -> None:
    """Fig. 4 of FedBE: each adds 9 · 64² + 64 parameters, and the dense layers stay."""
    plain, deep = (
        shapes(build("convnet", "deterministic", CIFAR, **{"extra-convolutions": n}))
        for n in (0, 2)
    )
    added = {f"conv{n}/{part}" for n in (4, 5) for part in ("kernel", "bias")}
    assert deep.keys() - plain.keys() == added
    assert {name: deep[name] for name in plain} == plain
    assert deep["conv5/kernel"] == (3, 3, 64, 64)


def forward(parameters: dict[str, Any], images: Any, pooled: tuple[bool, ...]) -> Any:
    """Return logits: convolutions, each with ReLU and perhaps pooling, then dense layers."""
    x = images
    for index, pools in enumerate(pooled, start=1):
        kernel = parameters[f"conv{index}/kernel"]
        windows = np.lib.stride_tricks.sliding_window_view(x, kernel.shape[:2], axis=(1, 2))
        x = np.einsum("nhwcij,ijco->nhwo", windows, kernel) + parameters[f"conv{index}/bias"]
        x = np.maximum(x, 0)
        if pools:
            n, h, w, c = x.shape
            x = x[:, : h // 2 * 2, : w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))
    x = x.reshape(len(x), -1)
    for name in sorted({name.split("/")[0] for name in parameters if name.startswith("dense")}):
        x = np.maximum(x @ parameters[f"{name}/kernel"] + parameters[f"{name}/bias"], 0)
    return x @ parameters["logits/kernel"] + parameters["logits/bias"]


@pytest.mark.parametrize(
    ("word", "shape", "pooled"),
    [
        ("mlp", (5, 4, 2), ()),
        ("cnn1", (17, 22, 2), (True, True)),
        ("convolutional", CIFAR, (True, True)),
        ("convolutional", FASHION, (True, True)),
        ("convolutional", (17, 22, 2), (True, True)),
        ("convnet", CIFAR, (True, True, False)),
        ("convnet", (19, 24, 2), (True, True, False)),
    ],
)
def test_forward_passes_are_those_of_the_papers(
    word: str, shape: tuple[int, int, int], pooled: tuple[bool, ...]
) -> None:
    network = build(word, "deterministic", shape)
    generator = np.random.default_rng(0)
    parameters = {name: generator.normal(0, 0.1, shape) for name, shape in shapes(network).items()}
    point = np.concatenate([value.ravel() for value in parameters.values()]).astype(np.float32)
    network.load_values(network.manifest, np.zeros(0, np.float32), point)
    images = generator.uniform(-1, 1, (3, *shape)).astype(np.float32)
    logits = network.logits(images, np.zeros(2, np.int32), training=False).numpy()
    expected = forward(parameters, images.astype(np.float64), pooled)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
    assert np.abs(expected).max() > 0.1
