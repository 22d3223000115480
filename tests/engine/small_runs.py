"""Small runs of digits, and a study of two of them, as files say them."""


def small_run(rounds: int) -> str:
    """Return the configuration of a run, in TOML."""
    return f"""
dataset = "digits"
model = "resnet8"
inference = "deterministic"
strategy = "nwa"
train-examples = 300
test-examples = 100
rounds = {rounds}
local-epochs = 1
clients = 2
figures = "none"
"""


def small_study(rounds: int, seeds: int = 2) -> str:
    """Return a study of such runs with several seeds, in TOML."""
    return f"""
title = "Small"
[base]{small_run(rounds)}
[axes]
seed = {list(range(seeds))}
[[rows]]
label = {{ rule = "NWA" }}
[[columns]]
metric = "accuracy"
title = "accuracy"
"""
