"""The forward pass of plain networks, written out in NumPy, and what their tests build."""

from typing import Any

import numpy as np

from bfl.learning.inferences import inferences
from bfl.learning.models import create_architecture


def build(
    word: str, inference: str, shape: tuple[int, int, int], classes: int = 10, **settings: Any
) -> Any:
    """Return the network that a word names, with the settings of its architecture."""
    from bfl.learning.networks.network import build_network

    architecture = create_architecture(word, settings)
    return build_network(architecture, inferences.create(inference), shape, classes)


def shapes(network: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a network's parameters by their names."""
    return {p.name: p.shape for p in network.manifest}


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


def check_forward_pass(network: Any, pooled: tuple[bool, ...]) -> None:
    """Compare the logits of a network of points with those of ``forward``."""
    generator = np.random.default_rng(0)
    parameters = {name: generator.normal(0, 0.1, shape) for name, shape in shapes(network).items()}
    point = np.concatenate([value.ravel() for value in parameters.values()]).astype(np.float32)
    network.load_values(network.manifest, np.zeros(0, np.float32), point)
    images = generator.uniform(-1, 1, (3, *network.image_shape)).astype(np.float32)
    logits = network.logits(images, np.zeros(2, np.int32), training=False).numpy()
    expected = forward(parameters, images.astype(np.float64), pooled)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
    assert np.abs(expected).max() > 0.1
