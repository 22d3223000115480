"""The end of a run: its final posterior evaluated, and what is known written and shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from bfl.closing import Closed
from bfl.closing.base import Known
from bfl.closing.closed import CONFIDENCE, OF_CLOSING, UNFAMILIAR_SHARE, UNLIKE
from bfl.data.datasets.foreign import corruption_names
from bfl.errors import DataError, NotFiniteError
from bfl.evaluation.evaluated_ensemble import ENSEMBLE, EvaluatedEnsemble
from bfl.evaluation.metrics import evaluate
from bfl.evaluation.prediction import Predictions
from bfl.evaluation.prediction_sets import set_numbers
from bfl.experiments.results import run_folder as files
from bfl.experiments.results import summary as foreign_data
from bfl.experiments.results.clients import (
    describe_clients,
    describe_left_out,
    evaluated_clients,
    means_over_clients,
)
from bfl.experiments.results.environment import ENDED, time_now
from bfl.experiments.results.figures import draw_all
from bfl.experiments.results.monitoring import CollapseWatch, error_auroc
from bfl.experiments.results.summary import (
    ShownForeign,
    write_ensemble,
    write_evaluation,
    write_examples,
)
from bfl.experiments.results.table import metrics_table
from bfl.experiments.run.resume import Checkpoints
from bfl.federation.wire import Positions
from bfl.posteriors import Posterior
from bfl.posteriors.spread import isotropic, scale_spread
from strategies.application.evaluation import NoEvaluator, evaluated_ensemble, not_finite
from strategies.application.run_context import (
    RunContext,
    account_of,
    best_posterior,
    posterior_to_close,
)
from strategies.run_support import describe_number
from strategies.server_state import ServerState

if TYPE_CHECKING:
    from bfl.data.images import Images


def finish(context: RunContext, posterior: Posterior, known: Known | None = None) -> None:
    """Evaluate the final posterior in full if the server does, and write and show what is known."""
    folder, evaluator, progress = context.folder, context.evaluator, context.progress
    samples = context.configuration.keys.mc_samples
    for text in describe_left_out(folder.rounds()):
        progress.say(f"warning: {text}")
        folder.append_warning(text)
    if evaluator.validates:
        progress.say(best_posterior(context).describe())
    folder.write_posterior(posterior, evaluator.manifest)
    closed = Closed(known) if known else None
    numbers: dict[str, float] = {}
    if known:
        folder.write_arrays(files.CLOSING, known)
        numbers |= {name: float(known[name]) for name in OF_CLOSING if name in known}
    of_some = None
    if not (isinstance(evaluator, NoEvaluator) or context.configuration.shared.partial):
        progress.say(f"final evaluation with {samples} Monte Carlo samples")
        found, of_some = _evaluate(context, posterior, samples, closed)
        numbers |= found
    if context.test_partition is not None:
        personalization = context.configuration.personalization
        table = evaluated_clients(
            folder.rounds(),
            of_some,
            context.test_partition,
            due=context.configuration.keys.clients_evaluate,
            models=personalization.models,
        )
        folder.write_json(files.CLIENTS, table)
        numbers |= means_over_clients(table)
        names = context.configuration.partition.names(evaluator.dataset.train_columns)
        progress.say(describe_clients(table, names))
    if account := account_of(context, len(folder.rounds())):
        numbers |= account.epsilons()
    if folder.holds(files.FOREIGN):
        progress.say(foreign_data.describe_foreign(folder.read_json(files.FOREIGN)))
    figures = draw_all(folder)
    with suppress(DataError):  # a damaged file ends no run
        environment = folder.read_json(files.ENVIRONMENT, {})
        folder.write_json(files.ENVIRONMENT, {**environment, ENDED: time_now()})
    folder.write_metrics(numbers)
    context.log.end(numbers, figures)
    if numbers and progress.verbose:
        progress.console.print(metrics_table(numbers, samples))
    if figures:
        progress.say(f"figures: {', '.join(path.name for path in figures)}")
    progress.say(f"posterior SHA-256 {posterior.digest()}")
    progress.end(numbers, folder.path.resolve())


def _evaluate(
    context: RunContext, last: Posterior, samples: int, closed: Closed | None
) -> tuple[dict[str, float], Callable[[Positions], dict[str, float]] | None]:
    """Evaluate the final posterior, or that which was closed, and write what it predicts."""
    folder, test = context.folder, context.evaluator.dataset
    settings = context.evaluator.configuration.values
    posterior = posterior_to_close(context, last)
    ensemble, numbers = None, dict[str, float]()
    try:
        ensemble = last_ensemble(context, last)
    except NotFiniteError as error:
        numbers |= not_finite(error, ENSEMBLE)
    try:
        predictions = context.evaluator.predict(
            posterior, samples=samples, purpose="final", closed=closed
        )
    except NotFiniteError as error:
        numbers |= not_finite(error)
        numbers |= write_ensemble(folder, ensemble, settings) if ensemble else {}
        _tell(context, numbers)
        return numbers, None
    numbers |= write_evaluation(
        folder, predictions, test.tested_on, settings, posterior, ensemble=ensemble
    )
    of_foreign, foreign = _besides_closing(context, posterior, samples, predictions, closed)
    numbers |= of_foreign | _corrupted(context, posterior, samples, predictions, closed)
    _tell(context, numbers)
    if closed:
        numbers |= _familiarities(context, closed, predictions, foreign)
    if not test.encoding and test.test_targets is None:
        write_examples(folder, predictions, test.test_images, test.test_labels)
    _write_learnt(context, posterior, samples)
    if posterior.size:
        seen = numbers
        if isinstance(predictions, Predictions):
            wrong = predictions.predicted != test.tested_on
            seen = numbers | error_auroc(predictions.epistemic, wrong)
        CollapseWatch(folder, context.progress.say).look(seen, samples, files.FINAL_EVALUATION)

    def of_some(positions: Positions) -> dict[str, float]:
        some, labels = predictions.take(positions), test.tested_on[positions]
        return {**evaluate(some, labels, settings), **set_numbers(some, labels)}

    return numbers, of_some


COMPARED = 1000
"""The most test images on which draws are compared with isotropic noise."""


def _write_learnt(context: RunContext, posterior: Posterior, samples: int) -> None:
    """Say and write whether training has told the posterior's variances apart, and what it does."""
    evaluator, folder = context.evaluator, context.folder
    spread = scale_spread(posterior, context.configuration.inference.initial_standard_deviation)
    if not spread:
        sentence = "The weights are points: they have no variances that could be learnt."
        folder.write_json(files.LEARNT, {"sentence": sentence})
        return
    found = {**spread._asdict(), "sentence": f"The posterior's {spread.sentence()}."}
    images = evaluator.dataset.test_images[:COMPARED]
    with suppress(NotFiniteError):
        own, alike = (
            float(
                evaluator.predict(
                    q, samples=samples, purpose="final", images=images
                ).epistemic.mean()
            )
            for q in (posterior, isotropic(posterior))
        )
        if alike > 0.0:
            found["over-isotropic"] = own / alike
            found["sentence"] += (
                f" Its draws disagree {own / alike:.2f} times as much as those of isotropic noise "
                "of the same size."
            )
    context.progress.say(found["sentence"])
    folder.write_json(files.LEARNT, found)


def _besides_closing(
    context: RunContext,
    posterior: Posterior,
    samples: int,
    predictions: Predictions,
    closed: Closed | None,
) -> tuple[dict[str, float], Sequence[ShownForeign]]:
    """Return the metrics before the closing moved the last layer, and those of foreign images."""
    evaluator = context.evaluator
    settings, labels = evaluator.configuration.values, evaluator.dataset.tested_on

    def predicted(images: Images | None, closed: Closed | None) -> Predictions:
        found: Predictions = evaluator.predict(
            posterior, samples=samples, purpose="final", images=images, closed=closed
        )
        return found

    def before(images: Images | None) -> dict[str, Predictions]:
        moved = closed and closed.moves_predictions
        return {foreign_data.BEFORE_CLOSING: predicted(images, None)} if moved else {}

    numbers: dict[str, float] = {}
    try:
        test = before(None)
        for prefix, shown in test.items():
            numbers |= {f"{prefix}{k}": v for k, v in evaluate(shown, labels, settings).items()}
        foreign = [
            (each, {"": predicted(each.images, closed)} | before(each.images))
            for each in evaluator.foreign
        ]
    except NotFiniteError as error:
        return numbers | not_finite(error, foreign_data.OF_FOREIGN), []
    sources = [(each.name, each.near, by) for each, by in foreign]
    numbers |= foreign_data.write_foreign(
        context.folder, {"": predictions} | test, sources, settings
    )
    return numbers, foreign


def _familiarities(
    context: RunContext, closed: Closed, predictions: Predictions, foreign: Sequence[ShownForeign]
) -> dict[str, float]:
    """Say what the closing did; return how much of test and foreign data is unfamiliar."""
    numbers: dict[str, float] = {}
    said = [closed.summary] if closed.summary else []
    said.append(f"epistemic part {predictions.epistemic.mean():.1e}")
    shown = [("test", "", predictions)]
    shown += [(each.name, f"{foreign_data.OF_FOREIGN}{each.name}-", by[""]) for each, by in foreign]
    unlike = []
    for name, prefix, each in shown:
        if prefix:
            numbers[f"{prefix}{CONFIDENCE}"] = float(each.confidence.mean())
        if each.familiarity is not None:
            share = float((each.familiarity < closed.threshold).mean())
            numbers[f"{prefix}{UNFAMILIAR_SHARE}"] = share
            unlike.append(f"{name} {share:.1%}")
    if unlike:
        said.append(f"{UNLIKE}: {', '.join(unlike)}")
    context.progress.say(f"closing: {'; '.join(said)}")
    return numbers


def _corrupted(
    context: RunContext,
    posterior: Posterior,
    samples: int,
    predictions: Predictions,
    closed: Closed | None,
) -> dict[str, float]:
    """Write how good predictions are of corrupted test images."""
    evaluator = context.evaluator
    test = evaluator.dataset
    try:
        shown = foreign_data.predicted_by_strength(
            corruption_names(context.configuration.keys.corruptions),
            test.test_images,
            predictions,
            lambda images: evaluator.predict(
                posterior, samples=samples, purpose="final", images=images, closed=closed
            ),
        )
    except NotFiniteError as error:
        return not_finite(error, foreign_data.CORRUPTED)
    if shown:
        found = foreign_data.by_strength(shown, test.tested_on, context.configuration.values)
        context.folder.write_json(files.CORRUPTIONS, found)
    return {}


def _tell(context: RunContext, numbers: Mapping[str, float]) -> None:
    """Say which of the numbers are of logits that are not finite."""
    for name in numbers:
        if problem := describe_number(name, numbers):
            context.progress.say(f"{files.FINAL_EVALUATION}: {problem}")


def last_ensemble(context: RunContext, posterior: Posterior) -> EvaluatedEnsemble | None:
    """Return what the predictive's models of the last round predict; None for none.

    Where the last round's checkpoint has been damaged there are none: an older round's models are
    not those of the posterior.

    Raises:
        NotFiniteError: The logits of no model are finite.
    """
    last = Checkpoints(context.folder).latest()
    if last is None or not context.configuration.predictive.needs_models:
        return None
    if last.posterior.digest() != posterior.digest():
        context.progress.say(
            f"the newest checkpoint that can be read is of round {last.server_round} and has "
            "another posterior than the run has ended with: the ensemble is not evaluated"
        )
        return None
    state = ServerState.from_arrays(last.server_round, last.posterior, last.state)
    return evaluated_ensemble(context.evaluator, state)
