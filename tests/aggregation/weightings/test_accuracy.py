"""Weights by accuracy, against ones worked out by hand."""

from typing import Any

import numpy as np
import pytest
from numpy_server import NumpyServer

from bfl.aggregation.weightings import weightings
from bfl.configuration import resolve
from bfl.data.datasets.server_data import ServerData
from bfl.errors import ConfigurationError
from bfl.posteriors import Posterior

LABELS = np.array([0, 1, 1, 0])
RIGHT, WRONG = 1.0, -1.0


class FourImages:
    """A server with four images of two classes; a model's values are its logits of class 1."""

    classes = 2

    def __init__(self) -> None:
        self.data = ServerData(np.zeros((4, 1, 1, 1), np.uint8), LABELS, np.zeros(0, np.int64))
        self.asked: list[Any] = []

    def logits_at_mean(self, posterior: Posterior) -> Any:
        second = np.concatenate([posterior.mean, posterior.point])
        return np.stack([np.zeros(4), second], axis=1)


def client(*right: bool, gaussian: bool = True) -> Posterior:
    """Return a client that is right about some of the four images."""
    sides = np.where(LABELS == 1, 1.0, -1.0) * np.where(right, 1.0, -1.0)
    if gaussian:
        return Posterior(sides, np.full(4, 0.1))
    return Posterior(np.zeros(0), np.zeros(0), sides)


ALL, HALF, ONE, NONE = (
    (True,) * 4,
    (True, False, True, False),
    (False, False, True, False),
    (False,) * 4,
)


def weigh(clients: list[Posterior], server: Any = None) -> Any:
    """Return the clients' weights in round 3, of sizes that are to play no part."""
    scheme = weightings.create("accuracy")
    sizes = [10**k for k in range(len(clients))]
    return scheme.weigh(clients, sizes, None, server or FourImages())


@pytest.mark.parametrize("gaussian", [True, False], ids=["gaussians", "points"])
def test_weights_are_shares_of_the_accuracies(gaussian: bool) -> None:
    """1, 1/2, 1/4 and 0 of the images: 4/7, 2/7, 1/7 and nothing, whatever the sizes."""
    server = FourImages()
    everyone = [client(*right, gaussian=gaussian) for right in (ALL, HALF, ONE, NONE)]
    np.testing.assert_allclose(weigh(everyone, server), np.array([4, 2, 1, 0]) / 7, rtol=1e-15)


def test_clients_that_are_all_wrong_weigh_the_same() -> None:
    np.testing.assert_allclose(weigh([client(*NONE)] * 3), 1 / 3)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_not_finite_are_not_right(value: float) -> None:
    """Where argmax takes the first number that is none for the greatest."""
    lost = client(*ALL)
    lost.mean[:] = value
    assert weigh([lost, client(*ONE)]).tolist() == [0.0, 1.0]


def test_without_labelled_images_of_the_servers_own_nothing_begins() -> None:
    scheme = weightings.create("accuracy")
    with pytest.raises(ValueError, match="labelled images"):
        scheme.weigh([client(*ALL)], [1])
    with pytest.raises(ConfigurationError, match="server-data"):
        resolve({"weighting": "accuracy"})
    with pytest.raises(ConfigurationError, match="server-labels"):
        resolve({"strategy": "abavg", "server-labels": False})
    with pytest.raises(ConfigurationError, match="there are none; set server-data"):
        scheme.check(None)
    unlabelled = NumpyServer(4).data
    with pytest.raises(ConfigurationError, match="have no labels"):
        scheme.check(ServerData(unlabelled.images, None, unlabelled.held_back))
    scheme.check(unlabelled)
    assert resolve({"strategy": "abavg"}).weighting.name == "accuracy"


def test_at_the_mean_a_claimed_variance_changes_no_weight() -> None:
    """So such weights are no defence of rules by precision, as docs/trust.md says."""
    honest, liar = client(*HALF), client(*HALF)
    liar.variance[:] = 1e-30
    assert weigh([honest, liar]).tolist() == [0.5, 0.5]
