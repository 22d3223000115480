"""Judging a posterior on a test set, in a process of its own state: networks built once."""

from __future__ import annotations

from bfl.configuration import Configuration
from bfl.datasets import Dataset
from bfl.metrics import evaluate
from bfl.networks.network import build_network, build_predictor
from bfl.posteriors import Manifest, Posterior
from bfl.prediction.monte_carlo import Predictor
from bfl.prediction.predictions import Predictions


class Evaluator:
    """Judges posteriors of a run's network on the test set.

    Args:
        configuration: The run's configuration.
        dataset: Its data set.
    """

    def __init__(self, configuration: Configuration, dataset: Dataset) -> None:
        self.configuration = configuration
        self.dataset = dataset
        network = build_network(
            configuration.architecture,
            configuration.inference,
            dataset.image_shape,
            dataset.num_classes,
        )
        self.initial = network.initial_posterior(configuration.keys.seed)
        self.manifest: Manifest = network.manifest
        precision = configuration.keys.evaluate_precision
        self._predictor = Predictor(
            network.manifest, build_predictor(network, configuration.architecture, precision)
        )

    def predict(self, posterior: Posterior, *, samples: int, purpose: str | int) -> Predictions:
        """Return the predictions of M samples for the test set.

        Args:
            posterior: The posterior.
            samples: M.
            purpose: What keys the draws beside the seed: the round, or ``"final"``.
        """
        return self._predictor.predict(
            posterior,
            self.dataset.test_images,
            samples=samples,
            seed=self.configuration.keys.seed,
            labels=("evaluation", purpose),
        )

    def metrics(self, posterior: Posterior, server_round: int) -> dict[str, float]:
        """Return the metrics of a round, by the configuration's ``evaluate-mc-samples``."""
        predictions = self.predict(
            posterior,
            samples=self.configuration.keys.evaluate_mc_samples,
            purpose=server_round,
        )
        return evaluate(predictions, self.dataset.test_labels, self.configuration.values)
