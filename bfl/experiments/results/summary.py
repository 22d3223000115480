"""Evaluation of final predictions: metrics, retention curves, foreign and corrupted images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.closing.feature_density import DENSITY
from bfl.data.datasets.foreign import STRENGTHS, ForeignImages, corrupt
from bfl.data.images import Images
from bfl.evaluation import uncertainty
from bfl.evaluation.evaluated_ensemble import EvaluatedEnsemble, prefixed
from bfl.evaluation.metrics import ExampleMetric, evaluate, metrics
from bfl.evaluation.metrics.base import set_numbers
from bfl.evaluation.metrics.scores import NegativeLogLikelihood
from bfl.evaluation.prediction import Predictions
from bfl.evaluation.regression import RANKED_BY, SQUARED, Mixtures
from bfl.evaluation.uncertainty import uncertainties
from bfl.evaluation.uncertainty.retention import random_gain, retention_gain
from bfl.experiments.results import run_folder as files
from bfl.experiments.results.run_folder import RunFolder
from bfl.federation.client_metrics import COUNTS, TEST_EXAMPLES
from bfl.posteriors import Posterior

Numbers = npt.NDArray[np.float64]

Curves = Mapping[str, Mapping[str, uncertainty.RetentionCurve]]  # by metric and uncertainty
RANDOM = "random"  # name of the random order among the uncertainties of ``run.json:retention``

# Percents are precise enough for a figure and small enough for a text file. The exact curve has a
# point for each example, and can be computed from predictions.npz.
GRID = np.arange(1, 101) / 100


def retention_curves(
    predictions: Predictions | Mixtures,
    labels: npt.ArrayLike,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, dict[str, uncertainty.RetentionCurve]]:
    """Return ``curves[metric][uncertainty]`` of the uncertainties with ``retention = True``.

    ``labels`` are true classes (N,), integers in [0, C), or targets; of ``settings``, the
    configuration, each component takes its keys.

    Source: Fischer et al. (2024), section 3.3 and Fig. 2.
    """
    retained, ranks = _ranked(predictions, labels, settings)
    return {
        metric: {by: uncertainty.retention_curve(values, rank) for by, rank in ranks.items()}
        for metric, (values, _) in retained.items()
    }


def _ranked(
    predictions: Predictions | Mixtures,
    labels: npt.ArrayLike,
    settings: Mapping[str, Any] | None,
) -> tuple[dict[str, tuple[Numbers, bool]], dict[str, Numbers]]:
    """Return by metric its values (N,) and whether higher is better; by uncertainty its (N,)."""
    if isinstance(predictions, Mixtures):
        ranks = {RANKED_BY: predictions.uncertainty[RANKED_BY]}
        return dict(predictions.values(np.asarray(labels))), ranks
    created = [metrics.create(name, settings) for name in metrics.names()]
    retained = [m for m in created if isinstance(m, ExampleMetric) and m.retention]
    sorting = [u.name for u in uncertainties.classes() if u.retention]
    return (
        {m.name: (m.values(predictions, labels), m.higher_is_better) for m in retained},
        {name: uncertainties.create(name, settings).measure(predictions) for name in sorting},
    )


def summarize(
    predictions: Predictions | Mixtures,
    labels: npt.ArrayLike,
    settings: Mapping[str, Any] | None = None,
    curves: Curves | None = None,
) -> dict[str, float]:
    """Return the content of ``metrics.json``; see ``retention_curves`` for the arguments.

    These are all metrics by name, mean uncertainties (``mean-epistemic``), numbers of prediction
    sets, and areas of retention curves (``retention-area-accuracy-epistemic``).
    """
    curves = retention_curves(predictions, labels, settings) if curves is None else curves
    return {
        **evaluate(predictions, labels, settings),
        **set_numbers(predictions, labels),
        **uncertainty.mean_uncertainties(predictions, settings),
        **{
            f"retention-area-{metric}-{by}": curve.area
            for metric, by_uncertainty in curves.items()
            for by, curve in by_uncertainty.items()
        },
    }


def describe_posterior(posterior: Posterior) -> dict[str, float]:
    """Return the metrics of a posterior itself: its degree of spread, if it is Gaussian."""
    return {"degree-of-spread": posterior.degree_of_spread} if posterior.size else {}


def write_evaluation(
    folder: RunFolder,
    predictions: Predictions | Mixtures,
    labels: npt.ArrayLike,
    settings: Mapping[str, Any] | None = None,
    posterior: Posterior | None = None,
    ensemble: EvaluatedEnsemble | None = None,
) -> dict[str, float]:
    """Write the final predictions and retention curves of a run; return its metrics.

    The metrics are not written: ``metrics.json`` marks a finished run, so it must be the last file.
    Those of the posterior, and of an ensemble that predicts besides it, are among them.
    """
    curves = retention_curves(predictions, labels, settings)
    numbers = summarize(predictions, labels, settings, curves)
    if posterior is not None:
        numbers.update(describe_posterior(posterior))
    if ensemble is not None:
        numbers.update(write_ensemble(folder, ensemble, settings))
    if isinstance(predictions, Mixtures):
        folder.write_arrays(
            files.PREDICTIONS, {"targets": np.asarray(labels), **predictions.arrays()}
        )
        folder.write_json(files.RETENTION, _on_grid(curves))
        return numbers
    folder.write_predictions(predictions, labels)
    retained, ranks = _ranked(predictions, labels, settings)
    gains: dict[str, dict[str, float]] = {}
    for metric, (values, higher) in retained.items():
        gains[metric] = {
            by: retention_gain(values, rank, higher_is_better=higher) for by, rank in ranks.items()
        }
        gains[metric][RANDOM] = random_gain(values)  # the control
    folder.write_json(files.RETENTION, {**_on_grid(curves), "gains": gains})
    return numbers


def write_ensemble(
    folder: RunFolder, ensemble: EvaluatedEnsemble, settings: Mapping[str, Any] | None = None
) -> dict[str, float]:
    """Write a run's ``run.json:ensemble``; return the ensemble's metrics, ``ensemble-NAME``."""
    curves = retention_curves(ensemble.predictions, ensemble.labels, settings)
    numbers = prefixed(summarize(ensemble.predictions, ensemble.labels, settings, curves))
    members = {
        "member-accuracy": ensemble.accuracies,
        "left-out": list(ensemble.left_out),
        "confidences": ensemble.confidences(),
    }
    folder.write_json(files.ENSEMBLE, {**members, "retention": _on_grid(curves)})
    return {**numbers, **ensemble.round_metrics(settings or {})}


def _on_grid(curves: Curves) -> dict[str, Any]:
    return {
        "fraction": GRID.tolist(),
        "curves": {
            metric: {
                by: {"area": curve.area, "value": curve.at(GRID).tolist()}
                for by, curve in by_uncertainty.items()
            }
            for metric, by_uncertainty in curves.items()
        },
    }


def write_owners(
    folder: RunFolder, parts: Iterable[npt.NDArray[np.int64] | None], examples: int
) -> None:
    """Add to a run's predictions of N examples which client each is of (N,), or -1 for none."""
    owners = np.full(examples, -1)
    for client, part in enumerate(parts):
        if part is not None:
            owners[part] = client
    folder.add_arrays(files.PREDICTIONS, {OWNERS: owners})


def owners_of(folder: RunFolder) -> npt.NDArray[np.int64] | None:
    """Return which client each of a run's test examples is of (N,); None: of no client any."""
    if not folder.holds(f"{files.PREDICTIONS}:{OWNERS}"):
        return None
    with folder.reading_arrays(files.PREDICTIONS) as held:
        return np.asarray(held[OWNERS], np.int64)


def counts_by_client(folder: RunFolder) -> dict[int, npt.NDArray[np.int64]]:
    """Return, by client, how many of its test examples each class has, and how many are right.

    Both counts are one array (2, C). A client may have counted its own, of two classes.
    """
    found = {}
    for client, row in folder.read_json(files.CLIENTS, {}).items():
        if row.keys() >= {*COUNTS} and row[TEST_EXAMPLES]:
            size, ones, right_ones, right_zeros = (int(row[name]) for name in COUNTS)
            found[int(client)] = np.array([[size - ones, ones], [right_zeros, right_ones]])
    owners = owners_of(folder)
    if owners is not None and folder.holds(files.PREDICTED_CLASSES):
        predictions, labels = folder.predictions()
        for client in np.unique(owners[owners >= 0]).tolist():
            own = owners == client
            parts = labels[own], labels[own & (predictions.predicted == labels)]
            found[client] = np.stack([np.bincount(p, minlength=predictions.classes) for p in parts])
    return found


def only_classes(folder: RunFolder) -> dict[int, str]:
    """Return, by client, the class of all its test examples, where they are of one class."""
    names = folder.class_names()
    return {
        client: names[int(counts.argmax())] if names else str(counts.argmax())
        for client, (counts, _) in counts_by_client(folder).items()
        if (counts > 0).sum() == 1
    }


def final_losses(folder: RunFolder) -> Numbers:
    """Return the negative log-likelihood of each test example, in nats (N,), of classes."""
    return NegativeLogLikelihood().values(*folder.predictions())


def final_values(folder: RunFolder) -> Numbers | None:
    """Return which test examples a run has right, or its squared errors (N,); None: unknown."""
    if not folder.holds(files.PREDICTIONS):
        return None
    if folder.holds(files.PREDICTED_CLASSES):
        predictions, labels = folder.predictions()
        return np.asarray(predictions.predicted == labels, np.float64)
    mixtures, targets = folder.predicted_numbers()
    return np.asarray(mixtures.values(targets)[SQUARED][0], np.float64)


def auroc(positive: npt.ArrayLike, scores: npt.ArrayLike) -> float:
    """Return the probability that a positive example has a higher score, ties counted half.

    Without scikit-learn, whose import would take a fifth of a report's time.

    Source: Mann and Whitney (1947), "On a test of whether one of two random variables is
    stochastically larger than the other".
    """
    chosen = np.asarray(positive, np.bool_)
    _, place, counts = np.unique(np.asarray(scores), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    ones = int(chosen.sum())
    above = ranks[chosen].sum() - ones * (ones + 1) / 2
    return float(above / (ones * (chosen.size - ones)))


METRICS = ("accuracy", "negative-log-likelihood", "expected-calibration-error")
"""The metrics of corrupted images."""

CORRUPTED = "corrupted-"  # the prefix of numbers of logits of corrupted images that are not finite
OWNERS = "clients"  # of each test example, in ``predictions.npz``
BEFORE_CLOSING = "before-closing-"  # the prefix of metrics of the posterior without its closing
OF_FOREIGN = "ood-"  # the prefix of metrics of foreign images

QUANTILES = np.linspace(0.0, 1.0, 201)

Shown = Mapping[str, Predictions]
"""Predictions for the same images, by the prefix of their uncertainties' names."""

ShownForeign = tuple[ForeignImages, Shown]  # foreign images, and the predictions for them


def predicted_by_strength(
    names: Iterable[str],
    images: Images,
    clean: Predictions,
    predict: Callable[[Images], Predictions],
) -> dict[str, list[Predictions]]:
    """Return predictions for uint8 images (N, H, W, C) by corruption, at strengths 0 to 5.

    At 0 the images are unchanged.
    """
    return {
        name: [clean, *(predict(corrupt(images, name, strength)) for strength in STRENGTHS)]
        for name in names
    }


def by_strength(
    shown: Mapping[str, Sequence[Predictions]], labels: npt.ArrayLike, settings: Mapping[str, Any]
) -> dict[str, dict[str, list[float]]]:
    """Return ``found[corruption][metric]``: a list at strengths 0 to 5, by labels (N,)."""
    found = {}
    for corruption, by_level in shown.items():
        rows = [evaluate(predictions, labels, settings) for predictions in by_level]
        found[corruption] = {name: [row[name] for row in rows] for name in METRICS}
    return found


def write_foreign(
    folder: RunFolder,
    test: Shown,
    foreign: Iterable[tuple[str, bool, Shown]],
    settings: Mapping[str, Any],
) -> dict[str, float]:
    """Write the detection of foreign images to ``run.json``; return ``ood-NAME-auroc`` and others.

    These are of one score, which does not depend on the result: the feature density of a closing
    or, without one, the predictive entropy. See ``evaluated_foreign`` for the arguments.
    """
    content = evaluated_foreign(test, foreign, settings)
    if content:
        folder.write_json(files.FOREIGN, content)
    return {
        f"{OF_FOREIGN}{name}-{what}": value
        for name, source in content.get("sources", {}).items()
        for what, value in source["uncertainties"][content["score"]].items()
    }


def evaluated_foreign(
    test: Shown, foreign: Iterable[tuple[str, bool, Shown]], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the content of ``run.json:foreign``; nothing without foreign images.

    Args:
        test: The predictions for the test images: the run's under "", and those before a closing
            under ``BEFORE_CLOSING``, if they differ.
        foreign: The name of each foreign source, whether it is near, and its predictions.
        settings: The configuration, from which each uncertainty takes its keys.
    """

    def measured(shown: Shown) -> dict[str, npt.NDArray[np.float64]]:
        return {
            f"{prefix}{name}": values
            for prefix, predictions in shown.items()
            for name, values in uncertainty.measure_all(predictions, settings).items()
        }

    inside = measured(test)
    score = DENSITY if DENSITY in inside else "predictive-entropy"
    sources: dict[str, Any] = {}
    for name, near, shown in foreign:
        outside = measured(shown)
        sources[name] = {
            "near": near,
            "examples": shown[""].examples,
            "quantiles": np.quantile(outside[score], QUANTILES).tolist(),
            "uncertainties": {by: detection(inside[by], outside[by]) for by in inside},
        }
    if not sources:  # as of numbers, which have no such score
        return {}
    of_test = np.quantile(inside[score], QUANTILES).tolist()
    return {"score": score, "test": of_test, "sources": sources}


def numbers_of_foreign(content: Mapping[str, Any]) -> dict[str, float]:
    """Return all metrics of ``run.json:foreign``, such as ``ood-NAME-UNCERTAINTY-auroc``."""
    return {
        f"{OF_FOREIGN}{name}-{by}-{what}": float(value)
        for name, source in content["sources"].items()
        for by, found in source["uncertainties"].items()
        for what, value in found.items()
    }


def describe_foreign(content: Mapping[str, Any]) -> str:
    """Return a line with the AUROC of the run's score for each source of ``run.json:foreign``."""
    score = content["score"]
    found = (
        f"{name} ({'near' if source['near'] else 'far'}) "
        f"{source['uncertainties'][score]['auroc']:.3f}"
        for name, source in content["sources"].items()
    )
    return f"foreign images are told from test images by {score}, AUROC: {', '.join(found)}"


def detection(inside: npt.ArrayLike, foreign: npt.ArrayLike) -> dict[str, float]:
    """Return AUROC, AUPR and FPR95 of scores, of test images (N,) and foreign ones (M,).

    ``aupr`` is the average precision; ``fpr95`` the false positive rate at a true one of 95 %.

    Source: Hendrycks and Gimpel (2017); Yang et al. (2022), "OpenOOD", for the three together.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

    score = np.concatenate([np.asarray(inside, np.float64), np.asarray(foreign, np.float64)])
    positive = np.arange(len(score)) >= len(np.asarray(inside))
    false, true, _ = roc_curve(positive, score, drop_intermediate=False)
    return {
        "auroc": float(roc_auc_score(positive, score)),
        "aupr": float(average_precision_score(positive, score)),
        "fpr95": float(false[np.argmax(true >= 0.95)]),
    }
