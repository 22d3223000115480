"""Monitoring of a run: the collapse of its epistemic uncertainty, and weak final results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.closing.closed import UNFAMILIAR_SHARE
from bfl.closing.feature_density import DENSITY, FAMILIARITY, UNFAMILIAR, unlike_by_chance
from bfl.evaluation.metrics.scores import gap_of, paired_interval, wilson_interval
from bfl.evaluation.prediction.predictions import FloatArray
from bfl.experiments.results import run_folder
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.results.summary import (
    BEFORE_CLOSING,
    OF_FOREIGN,
    auroc,
    counts_by_client,
    only_classes,
    owners_of,
)
from bfl.experiments.results.table import three_digits
from bfl.posteriors.posterior import FRACTION_AT_FLOOR
from bfl.posteriors.spread import ScaleSpread
from bfl.texts import few

LEAST_SHARE, MOST_AT_FLOOR = 1e-2, 0.5
COLLAPSED = "the epistemic uncertainty has collapsed"
ERROR_AUROC, CHANCE_DEVIATION = "epistemic-error-auroc", "chance-deviation"
REMEDY = (
    f"the score {DENSITY} of a closing round does (key closing, command bfl close), where the run "
    'can have one, and rules such as strategy="nwa" keep it longer'
)


def collapse(numbers: Mapping[str, Any], samples: int) -> str | None:
    """Return a warning if a variational posterior's epistemic uncertainty has collapsed, or None.

    It has collapsed if one of these holds:

    - the mean epistemic uncertainty is below 1 % of the sum of aleatoric and epistemic (Eq. 9 of
      Fischer et al. 2024), with at least two Monte Carlo samples;
    - it tells wrong predictions from right ones no better than chance, by two standard deviations;
    - more than half of all standard deviations lie at ``scale-floor``.

    Args:
        numbers: A round's or a run's metrics, any of which may be missing.
        samples: The number of Monte Carlo samples of the uncertainties.
    """
    found = []
    if samples > 1 and "mean-epistemic" in numbers:
        epistemic = float(numbers["mean-epistemic"])
        whole = epistemic + float(numbers["mean-aleatoric"])
        if epistemic < LEAST_SHARE * whole:
            found.append(
                f"the mean epistemic uncertainty of the test predictions is {epistemic:.1e}, below "
                f"{LEAST_SHARE:.0%} of the whole, {whole:.1e}"
            )
        auroc = float(numbers.get(ERROR_AUROC, 1.0))
        if auroc <= 0.5 + 2.0 * float(numbers.get(CHANCE_DEVIATION, 0.0)):
            found.append(f"it tells wrong predictions no better than chance (AUROC {auroc:.2f})")
    at_floor = float(numbers.get(FRACTION_AT_FLOOR, 0.0))
    if at_floor > MOST_AT_FLOOR:
        found.append(f"{at_floor:.0%} of all standard deviations lie at scale-floor")
    if not found:
        return None
    return (
        f"{COLLAPSED}: {', and '.join(found)}. The model predicts as "
        "one with point weights would, and no longer tells what it does not know"
    )


def error_auroc(epistemic: FloatArray, wrong: npt.NDArray[np.bool_]) -> dict[str, float]:
    """Return how well the epistemic part (N,) tells ``wrong`` predictions (N,) from right ones.

    That is the AUROC, and its standard deviation by chance (Mann and Whitney, 1947); nothing where
    fewer than five are wrong, or right.
    """
    positive, negative = int(wrong.sum()), int((~wrong).sum())
    if min(positive, negative) < 5:
        return {}
    chance = math.sqrt((positive + negative + 1) / (12.0 * positive * negative))
    return {ERROR_AUROC: auroc(wrong, epistemic), CHANCE_DEVIATION: chance}


def warn_of_collapse(
    folder: RunFolder,
    numbers: Mapping[str, Any],
    samples: int,
    when: str,
    say: Callable[[str], Any],
) -> None:
    """Warn, once in a run, of a variational posterior that has collapsed; see ``collapse``."""
    found = collapse(numbers, samples)
    if found and not any(COLLAPSED in text for text in folder.warnings()):
        say(f"warning, {when}: {found}; {REMEDY}")
        folder.append_warning(f"{when}: {found}; {REMEDY}")


SURE, ENOUGH = 0.9, 10
"""From this probability on nobody would question a prediction; fewer of them say nothing."""

LIKELIHOOD = "negative-log-likelihood"
USUAL = "the model is better than always to say the most frequent class"


def collapsed_at_the_end(folder: RunFolder) -> bool:
    """Return whether a run was warned of a collapse that holds at its end.

    The final predictions tell, and the scales of the last round; the warning stays without both.
    """
    if not any(COLLAPSED in text for text in folder.warnings()):
        return False
    numbers, samples = folder.metrics(), 0
    for last in folder.rounds()[-1:]:
        numbers |= {name: last[name] for name in (FRACTION_AT_FLOOR,) if name in last}
    if folder.holds(run_folder.PREDICTED_CLASSES):
        predictions, labels = folder.predictions()
        numbers |= error_auroc(predictions.epistemic, predictions.predicted != labels)
        samples = predictions.samples
    elif folder.holds(run_folder.PREDICTED_NUMBERS):
        samples = folder.predicted_numbers()[0].samples
    measured = samples or FRACTION_AT_FLOOR in numbers
    return not measured or collapse(numbers, samples) is not None


def _beats_usual(counts: npt.NDArray[np.int64], hits: npt.NDArray[np.int64]) -> bool:
    usual = counts.argmax()
    wins, losses = hits.sum() - hits[usual], counts[usual] - hits[usual]
    pairs = np.repeat([1.0, -1.0, 0.0], [wins, losses, counts.sum() - wins - losses])
    return paired_interval(pairs)[0] > 0.0


def weaknesses(folder: RunFolder) -> Iterator[str]:
    """Yield what a finished run's results show to be weak, and not by chance alone."""
    config, numbers, errors, tested = folder.config(), folder.metrics(), math.inf, 0
    if collapsed_at_the_end(folder):
        yield COLLAPSED
    learnt = folder.read_json(run_folder.LEARNT, {})
    if "median" in learnt and not ScaleSpread(*(learnt[n] for n in ScaleSpread._fields)).learnt:
        yield "the posterior's variances tell no weights apart"
    if folder.holds(run_folder.PREDICTED_CLASSES):
        predictions, labels = folder.predictions()
        tested, losses = len(labels), -predictions.log_mean_probability
        errors = float(losses[np.arange(tested), labels].std()) / math.sqrt(tested)
        right, confidence = predictions.predicted == labels, predictions.confidence
        counts = (
            np.bincount(part, minlength=predictions.classes) for part in (labels, labels[right])
        )
        if np.ptp(labels) and not _beats_usual(*counts):
            yield f"the test examples do not show that {USUAL}"
        if confidence.mean() > wilson_interval(right.mean(), tested)[1]:
            yield f"it is overconfident, by {confidence.mean() - right.mean():.2g}"
        sure = confidence >= SURE
        if (count := int(sure.sum())) >= ENOUGH and (
            confidence[sure].mean() > wilson_interval(right[sure].mean(), count)[1]
        ):
            wrong = int((~right[sure]).sum())
            yield f"of {count} predictions of a confidence from {SURE} on, {wrong} are wrong"
        if numbers.get(LIKELIHOOD, 0.0) > math.log(predictions.classes):
            yield "its NLL is worse than that of equal probabilities for all classes"
        threshold = float(config.get(UNFAMILIAR, 0.01))
        if predictions.familiarity is not None and folder.holds(run_folder.CLOSING):
            strange = int((predictions.familiarity < threshold).sum())
            with folder.reading_arrays(run_folder.CLOSING) as closing:
                most, words = unlike_by_chance(closing[FAMILIARITY], threshold, tested)
            if strange > most:
                yield f"{strange} of {tested:,} test examples are unlike training data ({words})"
    sites, off, names, alike = [], [], folder.client_names(), only_classes(folder)
    owners = owners_of(folder) if folder.holds(run_folder.PREDICTED_CLASSES) else None
    for client, (counts, hits) in counts_by_client(folder).items():
        name = names[client] if client < len(names) else f"client {client}"
        if client in alike:
            yield f"all {counts.sum()} of {name} to test are “{alike[client]}”, which shows nothing"
        elif not _beats_usual(counts, hits):
            sites.append(f"{name} ({hits.sum()} against {counts.max()} of {counts.sum()})")
        if owners is not None and (own := owners == client).sum() >= ENOUGH:
            gap, low, high = gap_of(predictions, labels, own)
            side = f"{name} (by {abs(gap):.2f} too {'high' if gap > 0.0 else 'low'})"
            off += [side] if low > 0.0 or high < 0.0 else []
    if sites:
        yield f"test examples do not show that {USUAL} at {few(sites)}"
    if off:
        classes = folder.class_names()
        what = f"probability of “{classes[1]}”" if len(classes) == 2 else "confidence"
        yield f"the mean {what} does not fit what was observed at {few(off)}"
    rounds = [each for each in folder.rounds() if each.get(LIKELIHOOD) is not None]
    if rounds:
        best, last = min(rounds, key=lambda each: float(each[LIKELIHOOD])), rounds[-1]
        if last[LIKELIHOOD] > best[LIKELIHOOD] + 2.0 * errors:
            before, after = three_digits(best[LIKELIHOOD]), three_digits(last[LIKELIHOOD])
            risen = f"since round {best['round']}, the test NLL has risen from {before} to {after}"
            if f"{BEFORE_CLOSING}{LIKELIHOOD}" in numbers:
                risen += f" before the closing, which makes it {three_digits(numbers[LIKELIHOOD])}"
            yield f"{risen} (fewer rounds or a lower learning-rate may help)"
    passed = []
    for name in folder.read_json(run_folder.FOREIGN, {"sources": {}})["sources"]:
        flagged = numbers.get(f"{OF_FOREIGN}{name}-{UNFAMILIAR_SHARE}", 1.0)
        passed += [f"{name} ({three_digits(1.0 - flagged)})"] if flagged < 0.5 else []
    if passed:
        yield f"most foreign images pass as familiar: {', '.join(passed)}"
