"""What a run says of its posterior: have its variances been learnt, and do they matter?"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs_in_process import make_run

from bfl.configuration import resolve
from bfl.data.datasets import cached_dataset
from bfl.data.datasets.subset import with_test_examples
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.run.evaluator import Evaluator
from bfl.posteriors import Posterior

VALUES: dict[str, Any] = {
    "model": "mlp",
    "inference": "flipout",
    "strategy": "weighted-sum-of-normals",
    "rounds": 1,
    "local-epochs": 2,
    "train-examples": 200,
    "test-examples": 50,
    "mc-samples": 8,
    "evaluate-every": 0,
}

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("undrawn_figures")]


def learnt(folder: Path, **changes: Any) -> tuple[RunFolder, dict[str, Any]]:
    run = make_run(VALUES, 2, folder, **changes)
    return run, run.read_json("run.json:posterior")


def test_learnt_variances_are_compared_with_isotropic_noise_of_the_same_size(
    tmp_path: Path,
) -> None:
    """By the run's own draws: the same noise, scaled by one deviation for all weights."""
    run, found = learnt(tmp_path / "run", learning_rate=0.03, local_epochs=15)
    posterior, _ = run.posterior()
    quantiles = np.quantile(np.sqrt(posterior.variance) / 0.05, (0.05, 0.5, 0.95))
    assert [found[name] for name in ("low", "median", "high")] == pytest.approx(quantiles, rel=1e-4)
    data = with_test_examples(cached_dataset("digits", ""), 50)
    evaluator = Evaluator(resolve({"dataset": "digits", **VALUES}), data)
    alike = np.full(posterior.size, posterior.variance.mean(), np.float32)
    own, other = (
        evaluator.predict(each, samples=8, purpose="final").epistemic.mean()
        for each in (posterior, Posterior(posterior.mean, alike, posterior.point))
    )
    assert found["over-isotropic"] == pytest.approx(own / other, rel=1e-3)
    assert abs(found["over-isotropic"] - 1.0) > 0.05
    assert "tell no weights apart" in found["sentence"]  # all have grown alike
    assert f"{own / other:.2f} times as much" in found["sentence"]


def test_means_around_which_variances_are_fitted_are_federated_averagings(tmp_path: Path) -> None:
    changes = {"strategy": "fedavg", "rounds": 2, "class_weights": "balanced"}
    points, gaussians = (
        learnt(tmp_path / word, inference=word, **changes)[0].posterior()[0]
        for word in ("deterministic", "laplace")
    )
    np.testing.assert_array_equal(gaussians.mean, points.point)
    assert len(np.unique(gaussians.variance)) > 1000
