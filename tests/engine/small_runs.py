"""Small runs of digits, and a study of two of them, as files say them."""


def small_run(rounds: int, model: str = "mlp") -> str:
    """Return the configuration of a run, in TOML."""
    return f"""
dataset = "digits"
model = "{model}"
inference = "deterministic"
strategy = "nwa"
train-examples = 300
test-examples = 100
rounds = {rounds}
local-epochs = 1
clients = 2
figures = "none"
closing = "none"
"""


def small_study(rounds: int, model: str = "mlp") -> str:
    """Return a study of such runs with two seeds, in TOML."""
    return f"""
title = "Small"
[base]{small_run(rounds, model)}
[axes]
seed = [0, 1]
[[rows]]
label = {{ rule = "NWA" }}
[[columns]]
metric = "accuracy"
title = "accuracy"
"""
