"""A run from its configuration to its folder: federation, rounds, evaluation, figures."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flwr.serverapp import Grid

from bfl.closing.base import Known
from bfl.configuration import Configuration
from bfl.data.datasets import Dataset, cached_dataset, numbering_of
from bfl.data.datasets.reading import SUMMED
from bfl.data.datasets.subset import with_test_examples
from bfl.engine.run import run_of
from bfl.errors import LostStateError, RunError
from bfl.evaluation.uncertainty import check_measures
from bfl.experiments.results import run_folder as files
from bfl.experiments.results.environment import STARTED, describe_environment, time_now
from bfl.experiments.results.identity import run_key
from bfl.experiments.results.progress import ProgressReport
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.run.network import NetworkDescription, given_posterior
from bfl.experiments.run.resume import Checkpoint, Checkpoints, open_run
from bfl.experiments.run.simulation import made_up_name
from bfl.experiments.tracking import LiveLog, TrackedRun
from bfl.federation.outgoing import is_private
from bfl.federation.wire import posterior_from_arrays, posterior_to_arrays
from bfl.posteriors import Posterior
from bfl.printing import print_anywhere
from strategies.application import evaluation, preflight, run_context
from strategies.application.division import data_digests, describe_partition
from strategies.application.evaluation import NoEvaluator
from strategies.application.final_evaluation import finish
from strategies.application.pretraining import pretrain
from strategies.application.run_context import RunContext
from strategies.application.tables import can_sum_columns, sum_columns
from strategies.federation import discover
from strategies.privacy import pool_noise
from strategies.run_support import RunSupport
from strategies.server_state import ServerState

if TYPE_CHECKING:
    from bfl.experiments.run.evaluator import EvaluationNetwork, Evaluator

SILENCE_BEYOND_TIMEOUT = 30.0
"""Seconds that the server waits longer than a client may take: for the message's way and back."""


def run_federation(grid: Grid, configuration: Configuration) -> RunFolder:
    """Run a federation as configured and return the folder that holds its results.

    Raises:
        ConfigurationError: Something configured does not fit the data or the nodes; nothing has
            been trained.
        RunError: The federation could not go on.
        DataError: The data are not what they should be.
    """
    print_anywhere()
    keys = configuration.keys
    engine_run = run_of(grid)
    configuration.tracker.check()
    verbose, began = engine_run.verbose, engine_run.began
    with ProgressReport(keys.rounds, engine_run.console, began=began, verbose=verbose) as progress:
        if engine_run.console or not hasattr(grid, "engine_run"):  # who simulates has said it
            progress.say(configuration.title)
        whole = cached_dataset(keys.dataset, keys.data_dir, keys.reading)
        dataset = with_test_examples(whole, keys.test_examples)
        of_data = preflight.data_warnings(configuration, dataset)
        of_method = preflight.method_warnings(configuration)
        for text in filter(None, (*of_method, numbering_of(dataset), *of_data)):
            progress.say(text)
        preflight.refuse_for_tables(configuration, dataset)
        # It is built while the clients' processes start.
        network, summing = None, can_sum_columns(configuration, dataset)
        reading = replace(keys.reading, columns=SUMMED) if summing else keys.reading
        if keys.server_evaluates and not summing:
            network = _evaluation_network(configuration, dataset, engine_run.client_threads)
        preflight.check_privacy(configuration)

        # The nodes, and what each of them has.
        federation = discover(
            grid,
            keys.clients,
            keys.node_timeout,
            plugins=keys.plugins,
            private=is_private(configuration.outgoing),
            # With heads of their own, clients have classes of their own.
            num_classes=None if configuration.shared.partial else dataset.num_classes,
            dataset=(keys.dataset, keys.data_dir, reading),
            personal_models=configuration.personalization.active,
        )
        configuration = configuration.with_known(clients=federation.size)
        if summing:
            if columns := sum_columns(configuration, dataset, grid, federation, progress.say):
                configuration = configuration.with_known(table_columns=columns)
                keys = configuration.keys
                whole = cached_dataset(keys.dataset, keys.data_dir, keys.reading)
                dataset = with_test_examples(whole, keys.test_examples)
                of_data = preflight.data_warnings(configuration, dataset)
            if keys.server_evaluates:
                network = _evaluation_network(configuration, dataset, engine_run.client_threads)
        own = evaluation.server_data(configuration, dataset, federation.size, federation)
        if own and own.said:
            progress.say(own.said)
        if network:
            from bfl.experiments.run.evaluator import Evaluator

            evaluator: Any = Evaluator(configuration, dataset, network=network, server_data=own)
        else:
            manifest = evaluation.manifest_of_clients(
                configuration, dataset, grid, federation, progress.say
            )
            evaluator = NoEvaluator(configuration, dataset, manifest)
        initial = _initial(configuration, evaluator, progress)
        partition, test_partition = preflight.divide(configuration, dataset, federation, own)
        most = max(
            federation.own_examples[client] if positions is None else len(positions)
            for client, positions in enumerate(partition)
        )
        steps = keys.rounds * keys.local_epochs * -(-most // keys.batch_size)
        for text in (warnings := configuration.optimizer.warnings(steps)):
            progress.say(text)
        preflight.refuse_attackers(configuration, federation)
        digests = data_digests(whole, federation, own)
        described = describe_partition(configuration, dataset, partition, own)

        # The run's folder, before more rounds would cost a run its results that has lost states.
        name = keys.name or made_up_name(configuration)
        if keys.resume:
            folder = RunFolder.named(keys.output_dir, name)
            latest = Checkpoints(folder).latest()
            preflight.lost_states(
                configuration, federation, latest, preflight.how_to_begin_again(folder)
            )
        environment = {**describe_environment(), STARTED: time_now()}
        with open_run(configuration, name, environment, digests, described) as (folder, checkpoint):
            progress.say(f"{federation.size} clients; the run's folder is {folder.path}")
            again = preflight.how_to_begin_again(folder)
            advice = preflight.how_to_go_on(
                folder, "" if engine_run.client_threads is None else "serial"
            )
            if lost := preflight.lost_states(configuration, federation, checkpoint, again):
                progress.say(lost)
                advice = again
            engine_run.advise(advice)
            _write_network(folder, configuration, dataset, evaluated=network is not None)
            folder.write_json(files.PARTITION, described)
            noised = configuration.example_privacy.sums_noise is not None
            private = noised or is_private(configuration.outgoing)
            for text in () if private else (*of_data, *warnings):
                folder.append_warning(text)

            # The rounds that are left, and the end.
            run = TrackedRun(folder.path, folder.path.name, run_key(folder.path), folder.config())
            with LiveLog(configuration.tracker, run, folder.rounds(), progress.say) as log:
                parts = (partition, test_partition)
                context = RunContext(
                    grid, federation, folder, evaluator, *parts, progress, log, advice
                )
                if checkpoint:
                    progress.say(f"resumes after round {checkpoint.server_round}")
                elif keys.pretrain_examples:
                    posterior = pretrain(context, initial)
                    state = run_context.first_state(context, posterior)
                    checkpoint = Checkpoint(0, posterior, state.to_arrays())
                    Checkpoints(folder).save(checkpoint)
                finish(context, *_run_rounds(context, checkpoint, initial))
    return folder


def _evaluation_network(
    configuration: Configuration, dataset: Dataset, client_threads: int | None
) -> EvaluationNetwork:
    from bfl.experiments.run.evaluator import EvaluationNetwork

    if configuration.keys.task == "classification":
        check_measures(dataset.num_classes, configuration.values)
    run_context.start_tensorflow(configuration, client_threads)
    return EvaluationNetwork.of(configuration, dataset)


def _initial(
    configuration: Configuration, evaluator: Evaluator | NoEvaluator, progress: ProgressReport
) -> Posterior:
    preflight.check_no_moving_statistics(configuration, evaluator.manifest)
    keys = configuration.keys
    # A run with a checkpoint needs the other run's posterior no more, which may be gone.
    has_begun = (
        keys.resume
        and keys.name
        and Checkpoints(RunFolder.named(keys.output_dir, keys.name)).latest()
    )
    if keys.initial_posterior and not has_begun:
        posterior = given_posterior(keys.initial_posterior, evaluator.manifest)
        progress.say(f"begins with posterior {posterior.digest()} of {keys.initial_posterior}")
        return posterior
    return configuration.prior.first_posterior(evaluator.initial)


def _write_network(
    folder: RunFolder, configuration: Configuration, dataset: Dataset, *, evaluated: bool
) -> None:
    """Write which network it is, and on how many threads the server evaluates it, if it does."""
    threads = None
    if evaluated:
        from bfl.keras import configured_threads

        threads = configured_threads()
    content = NetworkDescription.of(configuration, dataset, threads).to_dict()
    folder.write_json(files.NETWORK, content)
    if dataset.encoding:
        for_nodes = ("class-names", "columns", "target")
        folder.write_json(
            files.FOR_NODES, {name: content[name] for name in for_nodes if name in content}
        )


def _run_rounds(
    context: RunContext, checkpoint: Checkpoint | None, initial: Posterior
) -> tuple[Posterior, Known | None]:
    """Run the rounds that are left; return the final posterior, and what its closing has found.

    Args:
        checkpoint: Where it stands; None: before its first round.
        initial: What the first round begins with.
    """
    keys = context.configuration.keys
    if checkpoint:
        state = ServerState.from_arrays(
            checkpoint.server_round, checkpoint.posterior, checkpoint.state
        )
    else:
        state = run_context.first_state(context, initial)
    best = run_context.best_posterior(context) if context.evaluator.validates else None
    if best:
        best.go_on(state.posterior)
    privacy = run_context.account_of(context, state.server_round, to_come=True)
    recorder = run_context.RoundRecorder(context, best, privacy, run_of(context.grid).on_round)

    def warn(text: str) -> None:
        context.progress.say(text)
        context.folder.append_text(files.REFUSALS, text)

    evaluates: dict[str, Any] = {}
    if keys.server_evaluates:
        evaluates["server"] = evaluation.own_server(context.evaluator)
        evaluates["evaluate_models"] = evaluation.model_evaluation(context.evaluator)
    support = RunSupport(
        manifest=context.evaluator.manifest,
        pool_noise=pool_noise(context.configuration, anew=context.federation.noise_anew),
        on_round=recorder.record,
        on_warning=warn,
        federation=context.federation,
        state=state,
        folder=context.path,
        key=run_key(context.folder.path),
        test_partition=context.test_partition,
        on_replies=context.progress.replied if context.progress.is_live else None,
        to_close=lambda last: run_context.posterior_to_close(context, last),
        before_sums=lambda release: run_context.count_sums(context, release),
        on_sums=context.progress.say,
        **evaluates,
    )
    num_classes = context.evaluator.dataset.num_classes
    strategy = run_context.make_strategy(
        context.configuration, num_classes, context.partition, support
    )
    try:
        result = strategy.start(
            context.grid,
            posterior_to_arrays(state.posterior),
            # A run that has stopped early and is resumed has no rounds left.
            num_rounds=0
            if (best and best.exhausted()) or not recorder.begin(state.server_round + 1)
            else keys.rounds,
            timeout=keys.client_timeout + SILENCE_BEYOND_TIMEOUT,
            evaluate_fn=evaluation.round_evaluation(context.evaluator)
            if keys.server_evaluates
            else None,
        )
    except LostStateError as error:
        raise LostStateError(f"{error}\n{preflight.how_to_begin_again(context.folder)}") from error
    except RunError as error:
        moved = "" if context.folder.holds(files.CONFIG) else f"put {context.path} back, and then: "
        raise RunError(f"{error}\n{moved}{context.advice}") from error
    return posterior_from_arrays(result.arrays), strategy.closed
