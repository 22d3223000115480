"""Training steps and predictions of bayesian-torch's Flipout ResNet-20; prints one JSON line.

Run in an environment of its own with PyTorch and bayesian-torch:

    python bayesian_torch_resnet20.py train|predict --steps N --runs R

The network is He et al.'s ResNet-20 for 32 x 32 images with bayesian-torch's Flipout convolutions
and dense layer, biases included, and shortcuts without parameters, as in this project.
"""

from __future__ import annotations

import argparse
import json
import time

import torch
from bayesian_torch.layers import Conv2dFlipout, LinearFlipout
from torch import nn
from torch.nn import functional

BATCH = 32
SETTINGS = {
    "prior_mean": 0.0,
    "prior_variance": 10.0,
    "posterior_mu_init": 0.0,
    "posterior_rho_init": -3.0,
    "bias": True,
}


def convolution(before: int, after: int, stride: int) -> nn.Module:
    """Return a 3 x 3 Flipout convolution."""
    return Conv2dFlipout(before, after, 3, stride=stride, padding=1, **SETTINGS)


class Block(nn.Module):
    """Two convolutions and a shortcut without parameters."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = convolution(before, after, stride), convolution(after, after, 1)
        self.norm1, self.norm2 = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
        self.stride, self.missing = stride, after - before

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return features and divergence."""
        features, first = self.first(images)
        features, second = self.second(functional.relu(self.norm1(features)))
        shortcut = images[:, :, :: self.stride, :: self.stride]
        shortcut = functional.pad(shortcut, (0, 0, 0, 0, self.missing // 2, self.missing // 2))
        return functional.relu(self.norm2(features) + shortcut), first + second


class ResNet20(nn.Module):
    """The network; gives logits and divergence."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = convolution(3, 16, 1), nn.BatchNorm2d(16)
        widths = [(16, 16, 1)] * 3 + [(16, 32, 2)] + [(32, 32, 1)] * 2
        widths += [(32, 64, 2)] + [(64, 64, 1)] * 2
        self.blocks = nn.ModuleList(Block(*width) for width in widths)
        self.logits = LinearFlipout(64, 10, **SETTINGS)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits and divergence."""
        features, divergence = self.first(images)
        features = functional.relu(self.norm(features))
        for block in self.blocks:
            features, more = block(features)
            divergence = divergence + more
        logits, more = self.logits(features.mean((2, 3)))
        return logits, divergence + more


def train(steps: int) -> float:
    """Return the images per second of some training steps, after some that do not count."""
    network = ResNet20()
    adam = torch.optim.Adam(network.parameters(), 1e-3)
    images, labels = torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))

    def step() -> None:
        logits, divergence = network(images)
        loss = functional.cross_entropy(logits, labels) + divergence / 5000
        adam.zero_grad()
        loss.backward()
        adam.step()

    return _rate(step, steps, BATCH)


def predict(steps: int) -> float:
    """Return the images per second of one Monte Carlo sample in batches of 250."""
    network = ResNet20().eval()
    images = torch.randn(250, 3, 32, 32)

    def step() -> None:
        with torch.no_grad():
            network(images)

    return _rate(step, steps, 250)


def _rate(step: object, steps: int, batch: int) -> float:
    for _ in range(2):
        step()  # type: ignore[operator]
    started = time.perf_counter()
    for _ in range(steps):
        step()  # type: ignore[operator]
    return steps * batch / (time.perf_counter() - started)


def main() -> None:
    """Print the images per second of each run."""
    options = argparse.ArgumentParser()
    options.add_argument("work", choices=["train", "predict"])
    options.add_argument("--steps", type=int, default=10)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--threads", type=int, default=1)
    given = options.parse_args()
    torch.set_num_threads(given.threads)
    work = {"train": train, "predict": predict}[given.work]
    print(json.dumps({"images_per_second": [work(given.steps) for _ in range(given.runs)]}))


if __name__ == "__main__":
    main()
