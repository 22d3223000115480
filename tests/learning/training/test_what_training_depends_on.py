"""Local training: what its bits depend on and what not, and that it learns."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from trained_digits import BATCH, INFERENCES, digits, make_task, record_order, trainer_of

import bfl

pytestmark = pytest.mark.usefixtures("tensorflow")


# What the result depends on


def result_of_a_client(inference="flipout", server_round=3, partition=5, seed=0):
    """Return the digest of a small task; a fresh process calls this too."""
    trainer = trainer_of(inference, "crop-flip")
    received = trainer.network.initial_posterior(1)
    examples = np.arange(partition * 9, partition * 9 + 70)
    labels = (server_round, partition)
    task = make_task(received, examples, epochs=2, labels=labels, seed=seed)
    result = trainer.train(*digits(), task)
    return result.posterior.digest(), result.objective


@pytest.mark.parametrize("inference", INFERENCES)
def test_seed_round_and_partition_all_key_the_steps(inference, monkeypatch):
    """The order of the examples kept the same: crops, weights or masks still differ."""
    from bfl.learning.training import trainer as module

    order = module.batches(70, BATCH, 1, np.random.default_rng(0))
    monkeypatch.setattr(module, "batches", lambda *_: order)
    augmentation = "crop-flip" if inference == "deterministic" else "none"
    trainer = trainer_of(inference, augmentation)
    received, examples = trainer.network.initial_posterior(1), np.arange(70)

    def run(labels, seed):
        task = make_task(received, examples, labels=labels, seed=seed)
        return trainer.train(*digits(), task).posterior.digest()

    tasks = [((3, 5), 0), ((4, 5), 0), ((3, 6), 0), ((3, 5), 1)]
    results = [run(*task) for task in tasks]
    assert len(set(results)) == len(tasks)
    assert run(*tasks[0]) == results[0]


def test_seed_round_and_partition_all_key_the_order(monkeypatch):
    recorded = record_order(monkeypatch)
    trainer = trainer_of("deterministic")
    received, examples = trainer.network.initial_posterior(1), np.arange(70)
    for labels, seed in [((3, 5), 0), ((4, 5), 0), ((3, 6), 0), ((3, 5), 1), ((3, 5), 0)]:
        trainer.train(*digits(), make_task(received, examples, labels=labels, seed=seed))
    orders = [order.tobytes() for order, _ in recorded]
    assert len(set(orders)) == 4
    assert orders[0] == orders[4]


@pytest.mark.slow
def test_bits_are_those_of_a_fresh_process_whoever_was_served_before():
    """Which computes four operations at once, here one."""
    for inference in INFERENCES:
        for server_round, partition, seed in ((3, 6, 0), (4, 5, 0), (1, 1, 7)):
            result_of_a_client(inference, server_round, partition, seed)
    expected = [result_of_a_client(inference) for inference in INFERENCES]
    root = Path(bfl.__file__).parents[1]
    script = (
        "import sys\n"
        f"sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[2])]!r}\n"
        "from bfl.keras import configure\n"
        "configure(1, 4)\n"
        f"from {Path(__file__).stem} import INFERENCES, result_of_a_client\n"
        "print([result_of_a_client(inference) for inference in INFERENCES[::-1]])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.strip().splitlines()[-1] == str(expected[::-1])


# Learning
