"""The command ``bfl init``: a folder with a configuration, a rule and a study to begin with."""

from __future__ import annotations

import argparse

from bfl.commands.terminal import path_argument, write_output
from bfl.errors import ConfigurationError, RunError

FILES = {
    "config.toml": """# bfl run --run-config config.toml
# `bfl keys` lists all keys, `bfl list KEY` the words that a key takes.
dataset = "digits"     # or your own: "folder:PATH" with image-size = 32, "npz:FILE"
model = "resnet8"
inference = "flipout"
clients = 5
partition = "dirichlet"
plugins = "own_rule.py"
strategy = "own-rule"  # in own_rule.py; or one of bfl's, such as "ws"
weighting = "train-size"
rounds = 5
local-epochs = 2
closing = "bayesian-head+feature-density"

[data]
alpha = 0.5            # small: each client has few classes

[evaluation]
ood-dataset = "rotated+noised"
""",
    "own_rule.py": '''"""A pooling rule of my own."""

from bfl.aggregation.pooling.base import Array, Block, Decoded, PoolingRule, Totals, pooling_rules


@pooling_rules.register("own-rule")
class OwnRule(PoolingRule):
    """Weighted averages of means and of standard deviations.

    μ = Σ ω_k μ_k and σ = Σ ω_k σ_k.  Source: mine.
    """

    def encode(
        self, mean: Array, variance: Array, weight: float, block: Block
    ) -> tuple[Array, ...]:
        """Return what is summed over the clients: ω μ and ω σ, arrays (B,)."""
        return weight * mean, weight * variance**0.5

    def decode(self, sums: tuple[Array, ...], totals: Totals, block: Block) -> Decoded:
        """Return the pooled mean and variance, arrays (B,)."""
        mean, deviation = sums
        return Decoded(mean / totals.mass, (deviation / totals.mass) ** 2)
''',
    "study.toml": """title = "My rule beside another"

[base]                 # the keys of all runs
dataset = "digits"     # or your own: "folder:PATH", "table:FILE.csv" with target and model = "mlp"
model = "resnet8"
clients = 5
rounds = 5
local-epochs = 2
plugins = "own_rule.py"

[axes]                 # each value with each row
seed = [0, 1, 2]

[[rows]]
label = "mine"
strategy = "own-rule"

[[rows]]
label = "weighted sum of normals"
strategy = "ws"

[[columns]]            # a number of metrics.json
metric = "accuracy"

[[columns]]
metric = "negative-log-likelihood"
""",
    "README.md": """# My federation

    bfl show --run-config config.toml              # what it resolves to, and why
    bfl run --backend serial --run-config config.toml
    bfl report runs/NAME                           # one HTML file with all results
    bfl study study.toml --backend serial          # my rule beside another, three seeds each
    bfl report study.toml --plugins own_rule.py
""",
}
"""The files that are made, by their names."""


def add_to(init: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl init``."""
    init.add_argument("folder", type=path_argument, help="the folder")
    init.set_defaults(run=make_folder)


def make_folder(given: argparse.Namespace) -> None:
    """Write the files, and print their paths.

    Raises:
        ConfigurationError: A file is there already.
        RunError: The folder cannot be made.
    """
    if there := [name for name in FILES if (given.folder / name).exists()]:
        raise ConfigurationError(f"{given.folder} has {', '.join(there)}; choose another folder")
    try:
        given.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make {given.folder}: {error.strerror or error}") from error
    for name, text in FILES.items():
        write_output(given.folder / name, text.encode())
