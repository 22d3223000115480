"""The ServerApp: a run from its configuration to its folder."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from bfl.configuration import Configuration, resolve
from bfl.data.datasets import cached_dataset, numbering_of
from bfl.data.datasets.reading import SUMMED
from bfl.data.datasets.subset import with_test_examples
from bfl.engine.run import run_of
from bfl.experiments.results import environment as machine
from bfl.experiments.results import run_folder as files
from bfl.experiments.results.run_folder import run_key
from bfl.experiments.results.table import ProgressReport
from bfl.experiments.run.network import given_posterior
from bfl.experiments.run.resume import Checkpoint, Checkpoints, open_run
from bfl.experiments.run.simulation import made_up_name
from bfl.experiments.tracking import LiveLog, TrackedRun
from bfl.federation.outgoing import is_private
from bfl.posteriors import Posterior
from bfl.printing import print_anywhere
from strategies.application import division, evaluation, preflight, run_context, tables
from strategies.application.final_evaluation import finish
from strategies.application.pretraining import pretrain
from strategies.application.rounds import run_rounds
from strategies.application.run_context import RunContext
from strategies.federation import discover

if TYPE_CHECKING:
    from bfl.experiments.run.evaluator import Evaluator


class FederationApp(ServerApp):
    """The ServerApp, which an engine of bfl's may ask before it starts."""

    check_before_start = staticmethod(preflight.check_before_start)
    client_sizes = staticmethod(preflight.client_sizes)


app = FederationApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation that Flower's run configuration describes."""
    run_federation(grid, resolve(context.run_config))


def run_federation(grid: Grid, configuration: Configuration) -> files.RunFolder:
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
        data_warnings = preflight.data_warnings(configuration, dataset)
        method_warnings = preflight.method_warnings(configuration)
        for text in filter(None, (*method_warnings, numbering_of(dataset), *data_warnings)):
            progress.say(text)
        preflight.refuse_for_tables(configuration, dataset)
        # It is built while the clients' processes start.
        network, summing = None, tables.can_sum_columns(configuration, dataset)
        reading = replace(keys.reading, columns=SUMMED) if summing else keys.reading
        if keys.server_evaluates and not summing:
            network = evaluation.build_network(configuration, dataset, engine_run.client_threads)
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
            if columns := tables.sum_columns(
                configuration, dataset, grid, federation, progress.say
            ):
                configuration = configuration.with_known(table_columns=columns)
                keys = configuration.keys
                whole = cached_dataset(keys.dataset, keys.data_dir, keys.reading)
                dataset = with_test_examples(whole, keys.test_examples)
                data_warnings = preflight.data_warnings(configuration, dataset)
            if keys.server_evaluates:
                network = evaluation.build_network(
                    configuration, dataset, engine_run.client_threads
                )
        held_back = keys.server_data or keys.pretrain_examples
        if whole.split_here and all(federation.own_examples.values()) and not held_back:
            # No client trains on it: all of it is for testing.
            whole = whole.all_for_testing()
            dataset = with_test_examples(whole, keys.test_examples)
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
            evaluator = evaluation.NoEvaluator(configuration, dataset, manifest)
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
        digests = division.data_digests(whole, federation, own)
        described = division.describe_partition(configuration, dataset, partition, own)

        # The run's folder, before more rounds would cost a run its results that has lost states.
        name = keys.name or made_up_name(configuration)
        if keys.resume:
            folder = files.RunFolder.named(keys.output_dir, name)
            latest = Checkpoints(folder).latest()
            preflight.lost_states(
                configuration, federation, latest, preflight.how_to_begin_again(folder)
            )
        environment = {**machine.describe_environment(), machine.STARTED: machine.time_now()}
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
            evaluation.write_network(folder, configuration, dataset, evaluated=network is not None)
            folder.write_json(files.PARTITION, described)
            noised = configuration.example_privacy.sums_noise is not None
            private = noised or is_private(configuration.outgoing)
            for text in () if private else (*data_warnings, *warnings):
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
                finish(context, *run_rounds(context, checkpoint, initial))
    return folder


def _initial(
    configuration: Configuration,
    evaluator: Evaluator | evaluation.NoEvaluator,
    progress: ProgressReport,
) -> Posterior:
    preflight.check_no_moving_statistics(configuration, evaluator.manifest)
    keys = configuration.keys
    # A run with a checkpoint needs the other run's posterior no more, which may be gone.
    has_begun = (
        keys.resume
        and keys.name
        and Checkpoints(files.RunFolder.named(keys.output_dir, keys.name)).latest()
    )
    if keys.initial_posterior and not has_begun:
        posterior = given_posterior(keys.initial_posterior, evaluator.manifest)
        progress.say(f"begins with posterior {posterior.digest()} of {keys.initial_posterior}")
        return posterior
    return configuration.prior.first_posterior(evaluator.initial)
