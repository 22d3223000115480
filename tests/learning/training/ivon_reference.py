"""Steps of the reference package of IVON on a small classification, recorded for the tests.

Needs PyTorch and ivon-opt, on which bfl does not rest; PyTorch 2.14 and ivon-opt 0.1.3 give the
recorded numbers exactly:

    python tests/learning/training/ivon_reference.py
"""

from pathlib import Path

import numpy as np

FIXTURE = Path(__file__).with_name("ivon_steps.npz")

EXAMPLES, FEATURES, CLASSES, STEPS = 24, 4, 3, 12
LAMBDA, DELTA, INITIAL_HESSIAN, RATE, DECAY = 40.0, 0.05, 0.4, 0.1, 0.9


def problem() -> dict[str, np.ndarray]:
    """Return the pixels, the labels, and the means with which training begins, in a row."""
    rng = np.random.default_rng(0)
    return {
        "pixels": rng.integers(0, 256, (EXAMPLES, FEATURES)).astype(np.uint8),
        "labels": rng.integers(0, CLASSES, EXAMPLES),
        "start": rng.normal(size=FEATURES * CLASSES + CLASSES).astype(np.float32),
    }


def reference_steps(pixels: np.ndarray, labels: np.ndarray, start: np.ndarray) -> dict:
    """Return the draws, the means and the Hessians of each step, (steps, D), by PyTorch."""
    import ivon
    import torch

    torch.manual_seed(0)
    inputs = torch.tensor(pixels.astype(np.float32) / 127.5 - 1.0)
    kernel = torch.nn.Parameter(torch.tensor(start[: FEATURES * CLASSES]).reshape(FEATURES, -1))
    bias = torch.nn.Parameter(torch.tensor(start[FEATURES * CLASSES :]))
    optimizer = ivon.IVON(
        [kernel, bias],
        lr=RATE,
        ess=LAMBDA,
        hess_init=INITIAL_HESSIAN,
        beta2=DECAY,
        weight_decay=DELTA,
    )

    def row() -> np.ndarray:
        return np.concatenate([v.detach().numpy().ravel() for v in (kernel, bias)])

    found: dict[str, list[np.ndarray]] = {"draws": [], "means": [], "hessians": []}
    for _ in range(STEPS):
        mean, hessian = row(), optimizer.param_groups[0]["hess"].numpy().copy()
        with optimizer.sampled_params(train=True):
            found["draws"].append((row() - mean) * np.sqrt(LAMBDA * (hessian + DELTA)))
            optimizer.zero_grad()
            logits = inputs @ kernel + bias
            torch.nn.functional.cross_entropy(logits, torch.tensor(labels)).backward()
        optimizer.step()
        found["means"].append(row())
        found["hessians"].append(optimizer.param_groups[0]["hess"].numpy().copy())
    return {name: np.stack(rows) for name, rows in found.items()}


if __name__ == "__main__":
    given = problem()
    np.savez_compressed(FIXTURE, **given, **reference_steps(**given))
