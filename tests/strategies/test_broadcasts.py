"""What of the global posterior clients are sent."""

import numpy as np
import pytest
from small_federation import arguments, make_grid, make_training_app

from bfl.aggregation.precision_spread import DISTANCE, SPREAD
from bfl.configuration import resolve
from bfl.errors import ConfigurationError
from bfl.federation.wire import ARRAYS, posterior_from_arrays, posterior_to_arrays, reply_content
from bfl.posteriors import Posterior
from strategies import LogLinearPool

START = Posterior(np.full(3, 0.5, np.float32), np.full(3, 4.0, np.float32), np.ones(2, np.float32))
MEAN = {"broadcast": "mean", "start": "mean"}


def test_a_broadcast_mean_holds_no_variance_and_clients_send_theirs_back():
    seen, rounds = [], []

    def train(message, context):
        arrays = message.content[ARRAYS]
        seen.append(sorted(arrays))
        received = posterior_from_arrays(arrays, variance=0.25)
        np.testing.assert_array_equal(received.variance, np.full(3, 0.25))
        client = int(context.node_config["partition-id"])
        sent = Posterior(
            received.mean + np.float32(client), np.full(3, 0.5 + client, np.float32), received.point
        )
        return reply_content(sent, {"num-examples": 10})

    grid = make_grid(make_training_app(train), 2)
    strategy = LogLinearPool(**arguments(broadcast="mean", clients=2, on_round=rounds.append))
    result = strategy.start(grid, posterior_to_arrays(START), num_rounds=2)
    assert seen == [["mean", "point"]] * 4
    pooled = posterior_from_arrays(result.arrays)
    # Precisions 2 and 2/3 of equal weight: the mean moves by 1/4 a round.
    np.testing.assert_allclose(pooled.mean, START.mean + 0.5, rtol=1e-6)
    np.testing.assert_allclose(pooled.variance, 0.75, rtol=1e-6)
    for finished in rounds:
        assert finished.metrics[SPREAD] == pytest.approx(np.log(3) / 2, rel=1e-6)
        assert finished.metrics[DISTANCE] == pytest.approx(0.5, rel=1e-5)


def test_by_default_all_is_sent_and_a_record_without_variances_is_none():
    assert sorted(posterior_to_arrays(START)) == ["mean", "point", "variance"]
    with pytest.raises(KeyError, match="variance"):
        posterior_from_arrays(posterior_to_arrays(START, ("mean", "point")))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inference": "deterministic", "pooling": "nwa"}, "needs Gaussian posteriors"),
        ({"start": "posterior"}, "start 'posterior' needs clients that are sent variances"),
        ({"prior": "previous-global"}, "prior 'previous-global' needs clients that are sent"),
        ({"objective": "elbo+proximal"}, "objective 'proximal' needs clients that are sent"),
        ({"strategy": "pvi"}, "prior 'cavity' .* needs clients that are sent variances"),
    ],
)
def test_what_needs_variances_goes_with_no_broadcast_mean(changes, message):
    assert resolve(MEAN).broadcast.name == "mean"
    with pytest.raises(ConfigurationError, match=message):
        resolve({**MEAN, **changes})
