"""The end of a run: its final posterior evaluated, and what is known written and shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from bfl.closing import Closed, closed
from bfl.closing.base import Known
from bfl.data.datasets.foreign import corruption_names
from bfl.engine.run import run_of
from bfl.errors import DataError
from bfl.evaluation.evaluated_ensemble import ENSEMBLE, EvaluatedEnsemble
from bfl.evaluation.metrics import NOT_FINITE, count_not_finite, evaluate
from bfl.evaluation.metrics.base import set_numbers
from bfl.evaluation.prediction import Predictions
from bfl.experiments.results import clients, environment, monitoring, summary
from bfl.experiments.results import run_folder as files
from bfl.experiments.results.clients import describe_left_out
from bfl.experiments.results.figures import draw_all
from bfl.experiments.results.table import VALIDATION, metrics_table
from bfl.federation.wire import Positions
from bfl.posteriors.spread import describe_variances
from bfl.printing import doing
from strategies.application.evaluation import evaluate_models
from strategies.application.rounds import FederationRun
from strategies.closing import measure_final_model
from strategies.method import Method
from strategies.server_state import ServerState

COMPARED = 1000
"""The most test images on which draws are compared with isotropic noise."""

Numbers = dict[str, float]
OfSome = Callable[[Positions], Mapping[str, float]]


def finish(run: FederationRun, state: ServerState, known: Known | None = None) -> None:
    """Evaluate the final posterior in full if the server does, and write and show what is known."""
    folder, evaluator, progress = run.results, run.evaluator, run.progress
    posterior = state.posterior
    configuration, keys = run.configuration, run.configuration.keys
    for text in describe_left_out(folder.rounds(), folder.client_names()):
        progress.say(f"warning: {text}")
        folder.append_warning(text)
    folder.write_posterior(posterior, evaluator.manifest)
    numbers: Numbers = {}
    if known:
        folder.write_arrays(files.CLOSING, known)
        numbers |= {name: float(known[name]) for name in closed.OF_CLOSING if name in known}
    of_some: OfSome | None = None
    if not configuration.shared.partial:
        progress.say("final evaluation")
        doing("final evaluation")
        found, of_some = _evaluate(run, state, Closed(known) if known else None)
        numbers |= found
        for name in (name for name in found if name.endswith(NOT_FINITE)):
            progress.say(
                f"{files.FINAL_EVALUATION}: {found[name]:g} logits are not finite ({name}), so "
                "there are no metrics of them; a client may have sent too large values"
            )
    measured, nodes = {}, any(run.federation.own_examples.values())
    if nodes and (reason := configuration.nodes_keep_metrics):
        text = f"no client tests the final model on data of its own: {reason}"
        progress.say(text)
        folder.append_warning(text)
    elif nodes and run.clients:
        method = Method.of(configuration)
        measured = measure_final_model(method, state, known or {}, run.clients)
    if measured or run.data.test is not None:
        table = clients.evaluated_clients(
            folder.rounds(),
            of_some,
            run.data.test,
            due=keys.clients_evaluate,
            models=configuration.personalization.models,
            measured=measured,
        )
        folder.write_json(files.CLIENTS, table)
        if run.data.test is not None and folder.holds(files.PREDICTIONS):
            summary.write_owners(folder, run.data.test, len(evaluator.dataset.tested_on))
        numbers |= clients.means_over_clients(table)
    if run.privacy:
        numbers |= run.privacy.epsilons()
    if folder.holds(files.FOREIGN):
        progress.say(summary.describe_foreign(folder.read_json(files.FOREIGN)))
    doing("figures are drawn")
    figures = draw_all(folder) if keys.figures == "png" else []
    with suppress(DataError):  # a damaged file ends no run
        ended = {environment.ENDED: environment.time_now()}  # of the first end of these rounds
        folder.write_json(files.ENVIRONMENT, ended | folder.read_json(files.ENVIRONMENT, {}))
    folder.write_metrics(numbers)
    if numbers and progress.verbose:
        progress.console.print(metrics_table(numbers))
    if figures:
        progress.say(f"figures: {', '.join(path.name for path in figures)}")
    progress.say(f"posterior SHA-256 {posterior.digest()}")
    progress.end(numbers, folder.path, over=not run_of(run.grid).baselines_follow)


def _evaluate(
    run: FederationRun, state: ServerState, closing: Closed | None
) -> tuple[Numbers, OfSome | None]:
    """Evaluate the final posterior and write what it predicts.

    Returns:
        The metrics, and what evaluates the same predictions on some of the test images.
    """
    folder, test, settings = run.results, run.evaluator.dataset, run.configuration.values
    samples, posterior = run.configuration.keys.mc_samples, state.posterior
    predict = partial(run.evaluator.predict, samples=samples, purpose="final")
    numbers: Numbers = {}
    ensemble: EvaluatedEnsemble | None = None
    predictions: Any = None
    if state.server_round:
        with count_not_finite(numbers, ENSEMBLE):
            ensemble = evaluate_models(run.evaluator, state)
    with count_not_finite(numbers):
        predictions = predict(posterior, closed=closing)
    if predictions is None:
        numbers |= summary.write_ensemble(folder, ensemble, settings) if ensemble else {}
        return numbers, None
    numbers |= summary.write_evaluation(
        folder, predictions, test.tested_on, settings, posterior, ensemble=ensemble
    )

    # The closing changes what is predicted, and what it is compared with is shown beside it.
    closings: dict[str, Closed | None] = {"": closing}
    if closing and closing.moves_predictions:
        closings[summary.BEFORE_CLOSING] = None
    shown_foreign: list[summary.ShownForeign] = []
    with count_not_finite(numbers, summary.OF_FOREIGN):
        of_test = {"": predictions}
        if summary.BEFORE_CLOSING in closings:
            before = of_test[summary.BEFORE_CLOSING] = predict(posterior)
            of_before = evaluate(before, test.tested_on, settings)
            numbers |= {f"{summary.BEFORE_CLOSING}{name}": n for name, n in of_before.items()}
        for source in run.evaluator.foreign:
            shown = {
                prefix: predict(posterior, images=source.images, closed=each)
                for prefix, each in closings.items()
            }
            shown_foreign.append((source, shown))
        sources = [(source.name, source.near, shown) for source, shown in shown_foreign]
        numbers |= summary.write_foreign(folder, of_test, sources, settings)
    with count_not_finite(numbers, summary.CORRUPTED):
        by_strength = summary.predicted_by_strength(
            corruption_names(run.configuration.keys.corruptions),
            test.test_images,
            predictions,
            lambda images: predict(posterior, images=images, closed=closing),
        )
        if by_strength:
            by_metric = summary.by_strength(by_strength, test.tested_on, settings)
            folder.write_json(files.CORRUPTIONS, by_metric)
    if closing:
        if run.evaluator.validates:
            with count_not_finite(numbers, VALIDATION):
                numbers |= run.evaluator.validation_metrics(posterior, "final", closing)
        shown_last = {("test", ""): predictions}
        for source, by_closing in shown_foreign:
            shown_last[source.name, f"{summary.OF_FOREIGN}{source.name}-"] = by_closing[""]
        of_closing, sentence = closing.describe(shown_last)
        numbers |= of_closing
        run.progress.say(sentence)
    learnt = describe_variances(
        posterior,
        run.configuration.inference.initial_standard_deviation,
        lambda q: float(predict(q, images=test.test_images[:COMPARED]).epistemic.mean()),
    )
    if posterior.size:
        run.progress.say(learnt["sentence"])
    folder.write_json(files.LEARNT, learnt)
    if posterior.size:
        seen = numbers
        if isinstance(predictions, Predictions):
            wrong = predictions.predicted != test.tested_on
            seen = numbers | monitoring.error_auroc(predictions.epistemic, wrong)
        when, say = files.FINAL_EVALUATION, run.progress.say
        monitoring.warn_of_collapse(folder, seen, samples, when, say)

    def of_some(positions: Positions) -> Numbers:
        some, labels = predictions.take(positions), test.tested_on[positions]
        return {**evaluate(some, labels, settings), **set_numbers(some, labels)}

    return numbers, of_some
