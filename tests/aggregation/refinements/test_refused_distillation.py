"""Distillation that cannot be: refused when a configuration is resolved, long before a round."""

from typing import Any

import pytest

from bfl.configuration import resolve
from bfl.errors import ConfigurationError

FEDBE: dict[str, Any] = {"strategy": "fedbe", "inference": "deterministic"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"strategy": "fedavg", "refinement": "distillation"},
            r"needs images of the server's own, .* allowed: server-data=\"held-back\"",
        ),
        ({"client-draws": 2}, r"posteriors to draw from \(client-draws\), which inference"),
        (
            {"distillation-targets": "labels"},
            "server-labels=true, or refinement distillation as it is set by default, .*none",
        ),
        ({"distillation-targets": "labels"}, "needs labels of .* allowed: server-labels=true"),
        (
            {"ensemble-samples": 0, "ensemble-average": False, "ensemble-clients": False},
            "ensemble-clients is False; allowed: true, .* would have no member",
        ),
        (
            {"distillation-learning-rate": 1e-4},
            "swa-lowest-rate is 0.0004; .* at most distillation-learning-rate, 0.0001",
        ),
        ({"sampler": "pooled-posterior"}, "needs Gaussian posteriors, .* or sampler dirichlet"),
        ({"server-data": "cifar9"}, "server-data is 'cifar9'; .* did you mean 'cifar10'"),
        ({"dataset": "digits", "server-data": "digits"}, "that the clients train on; allowed"),
        (
            {"strategy": "pvi", "inference": "flipout", "refinement": "distillation"},
            "refinement 'distillation'",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_distilled_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        resolve({**FEDBE, **given})


def test_what_is_refused_there_is_not_the_rest() -> None:
    assert resolve(FEDBE).values["refinement"] == "distillation"
    labels = {**FEDBE, "server-labels": True, "distillation-targets": "labels"}
    resolve(labels)
    resolve({**labels, "client-draws": 2})  # which nothing reads: there is no ensemble
    resolve({**FEDBE, "ensemble-samples": 0, "ensemble-average": False})
    # Plain steps have one rate, and a constant one is no cycle upside down.
    resolve({**FEDBE, "distillation-learning-rate": 1e-4, "distillation-optimizer": "sgd"})
    resolve({**FEDBE, "distillation-learning-rate": 1e-4, "swa-lowest-rate": 1e-4})
