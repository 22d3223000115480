"""Names of the clients' measurements, and text from clients made safe to print; free of Flower."""

from __future__ import annotations

from bfl.texts import printable

MOST_CHARACTERS = 20_000

CONTINUED = "    | "
"""Begins each later line of a client's text, so that none passes for the server's."""


def neutralize(text: str) -> str:
    r"""Return a client's text with control characters escaped and its later lines marked.

    It is cut after 20,000 characters. Text that has been neutralized stays as it is.

    Example:
        >>> print(neutralize("no\x1b[2Jdata\nround 7/7  accuracy 1.0"))
        no\x1b[2Jdata
            | round 7/7  accuracy 1.0
    """
    first, *others = text[: MOST_CHARACTERS + 1].split("\n")
    marked = [each if each.startswith(CONTINUED) else f"{CONTINUED}{each}" for each in others]
    shown = "\n".join(printable(each) for each in (first, *marked))
    return shown if len(shown) <= MOST_CHARACTERS else f"{shown[:MOST_CHARACTERS]} (cut)"


NUM_EXAMPLES = "num-examples"
"""The one metric that a client has to send: its number of training examples."""

NAMESPACE = "client/"
"""Prefix of what clients send in a round's record; the server's own have no slash."""

TRAIN_OBJECTIVE = "train-objective"
"""NLL + KL / N of the last epoch, in nats per example."""

TRAIN_LIKELIHOOD = "train-negative-log-likelihood"
"""The objective's first part, in nats per example."""

TRAIN_DIVERGENCE_PER_EXAMPLE = "train-divergence-per-example"
"""Its second part: KL[q ‖ p] / N after the last step, with the client's own N, in nats."""

TRAIN_DIVERGENCE = "train-divergence"
"""KL[q ‖ p] after the last step, in nats."""

TRAIN_STEPS = "train-steps"
"""Number of training steps of the round."""

TRAIN_SECONDS = "train-seconds"
MEMORY = "memory"
OWN_TEST = "test-"
"""Prefix of the names of metrics of a client's posterior on test data of the node's own."""

TEST_ACCURACY = f"{OWN_TEST}accuracy"
TEST_EXAMPLES = "test-examples"

POSITIVES, RIGHT_POSITIVES, RIGHT_NEGATIVES = "positives", "right-positives", "right-negatives"
"""Counts of its test examples, where there are two classes; the second is the positive one."""

COUNTS = (TEST_EXAMPLES, POSITIVES, RIGHT_POSITIVES, RIGHT_NEGATIVES)
LEAST = {TRAIN_LIKELIHOOD: -6.0, TRAIN_STEPS: 1, TRAIN_SECONDS: 0, MEMORY: 0}
LEAST |= dict.fromkeys(COUNTS, 0)
"""Least values. A likelihood of numbers is a density: -log p ≥ log(2π 1e-6) / 2, as their noise has
a variance of at least 1e-6. A divergence is known up to a constant where a prior is no density."""

MEME, PERSONAL = "meme-", "personal-"
"""Prefixes of the names of metrics of a client's two models on its own test data."""

BETTER = "better-accuracy"
"""The greater of both models' accuracies."""

RETENTION_AREA = "retention-area-accuracy-predictive-entropy"
"""The one retention area that clients measure of their models."""

OF_EACH_CLIENT = (
    *(TRAIN_LIKELIHOOD, TRAIN_DIVERGENCE, TRAIN_STEPS, TRAIN_SECONDS),
    *(TEST_ACCURACY, TEST_EXAMPLES, BETTER),
)
"""Metrics that a round's record has of each client, besides their mean, as it has those of its
models; it has of others the mean alone. A new one also gets a bound in ``LEAST`` if it has one,
and a value in clients/round.py."""
