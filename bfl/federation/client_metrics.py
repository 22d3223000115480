"""What clients measure: its names, in a message and in a round's record; free of Flower."""

from __future__ import annotations

NUM_EXAMPLES = "num-examples"
"""The one metric that a client has to send: its number of training examples."""

NAMESPACE = "client/"
"""What the names of all others begin with in a round's record. The server's own names have no
slash, so nothing that a client sends can take the place of what the server knows."""

TRAIN_OBJECTIVE = "train-objective"
"""NLL + KL / N of the last epoch, in nats per example. Where the second part is large it hides the
first, so a round's line and the learning curve show the two apart."""

TRAIN_LIKELIHOOD = "train-negative-log-likelihood"
"""The objective's first part, in nats per example."""

TRAIN_DIVERGENCE_PER_EXAMPLE = "train-divergence-per-example"
"""Its second part: KL[q ‖ p] / N after the last step, with the client's own N, in nats."""

TRAIN_DIVERGENCE = "train-divergence"
"""KL[q ‖ p] after the last step, in nats."""

TRAIN_SECONDS = "train-seconds"
MEMORY = "memory"
OWN_TEST = "test-"
"""What the name of a metric of a client's posterior on test data of the node's own begins with."""

TEST_ACCURACY = f"{OWN_TEST}accuracy"
TEST_EXAMPLES = "test-examples"

AT_LEAST_0 = frozenset({TRAIN_LIKELIHOOD, TRAIN_SECONDS, MEMORY, TEST_EXAMPLES})
"""What is never below 0; a divergence is known up to a constant where a prior is no density."""

MEME, PERSONAL = "meme-", "personal-"
"""What the names of a metric of a client's two models on its own test data begin with."""

BETTER = "better-accuracy"
"""The greater of both models' accuracies."""

RETENTION_AREA = "retention-area-accuracy-predictive-entropy"
"""The one retention area that clients measure of their models."""

OF_EACH_CLIENT = (
    TRAIN_LIKELIHOOD,
    TRAIN_DIVERGENCE,
    TRAIN_SECONDS,
    TEST_ACCURACY,
    TEST_EXAMPLES,
)
"""What a round's record keeps of each client; of others it has the mean over the clients alone."""


def of_judged_models(name: str) -> bool:
    """Return whether a client has measured what it sends under a name of one of its models."""
    return name == BETTER or name.startswith((MEME, PERSONAL))


def of_each_client(name: str) -> bool:
    """Return whether a round's record keeps what each client has sent under a name."""
    return name in OF_EACH_CLIENT or of_judged_models(name)


def recorded(name: str) -> str:
    """Return the name in a round's record of what clients send as ``name``."""
    return NAMESPACE + name
