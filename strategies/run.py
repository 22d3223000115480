"""A run from its configuration to its folder: federation, rounds, evaluation, figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flwr.serverapp import Grid

from bfl.configuration import Configuration
from bfl.data.datasets import Dataset, absent_classes
from bfl.data.datasets.cache import cached_dataset
from bfl.data.datasets.server_data import ServerData
from bfl.data.datasets.subset import with_test_examples
from bfl.data.partitions.manifest import describe
from bfl.engine.resources import cpus_of_this_process
from bfl.engine.run import run_of
from bfl.errors import RunError
from bfl.evaluation.predictives.judged import JudgedEnsemble
from bfl.experiments.results.best import BestPosterior
from bfl.experiments.results.collapse import CollapseWatch
from bfl.experiments.results.environment import describe_environment
from bfl.experiments.results.examples import write_examples
from bfl.experiments.results.figures import draw_all
from bfl.experiments.results.identity import run_key
from bfl.experiments.results.judged_clients import judged_clients, means_over_clients, told
from bfl.experiments.results.progress import ProgressReport
from bfl.experiments.results.run_folder import FINAL_EVALUATION, RunFolder
from bfl.experiments.results.summary import write_evaluation
from bfl.experiments.results.table import metrics_table
from bfl.experiments.run.network import NetworkDescription
from bfl.experiments.run.resume import Checkpoint, Checkpoints, open_run
from bfl.experiments.run.run_name import made_up_name
from bfl.experiments.tracking import LiveLog, TrackedRun, live_log
from bfl.federation.wire import Positions, posterior_from_arrays, posterior_to_arrays
from bfl.posteriors import Posterior
from strategies import strategy_class
from strategies.division import own_test_positions, split
from strategies.federation import Federation, discover
from strategies.method import Method
from strategies.pool_sums import hidden_metrics
from strategies.posterior_pooling import PosteriorPooling
from strategies.pretraining import Pretraining
from strategies.refusals import (
    check_own_images,
    lost_states,
    refuse_attackers,
    refuse_personal_models,
)
from strategies.round_recorder import RoundRecorder
from strategies.server_state import ServerState
from strategies.validation import evaluation, judged_ensemble, judging, own_server, server_data

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
    from bfl.experiments.run.evaluator import Evaluator
    from bfl.keras import configure, configured_threads

    keys = configuration.keys
    configure(cpus_of_this_process())
    engine_run = run_of(grid)
    configuration.tracker.check()
    with ProgressReport(keys.rounds, follower=engine_run.follower) as progress:
        progress.say(configuration.title)
        dataset = with_test_examples(
            cached_dataset(keys.dataset, keys.data_dir), keys.test_examples
        )
        for text in absent_classes(dataset):
            progress.say(text)
        # Its networks are built while the clients' processes start.
        evaluator = Evaluator(configuration, dataset)
        federation = discover(grid, keys.clients, keys.node_timeout, plugins=keys.plugins)
        configuration = evaluator.configuration = configuration.replace(clients=federation.size)
        own = evaluator.server_data = server_data(configuration, dataset, federation)
        check_own_images(configuration, dataset, own)
        partition = split(configuration, dataset, federation, own)
        test_partition = own_test_positions(configuration, dataset, partition)
        refuse_attackers(configuration, federation)
        refuse_personal_models(configuration, federation.size, dataset.image_shape)
        name = keys.name or made_up_name(configuration)
        with (
            open_run(configuration, name, describe_environment()) as (folder, checkpoint),
            live_log(configuration.tracker, _tracked(folder), folder.rounds(), progress.say) as log,
        ):
            engine_run.advise(_how_to_go_on(folder))
            progress.say(f"{federation.size} clients; the run's folder is {folder.path}")
            if said := lost_states(configuration, federation, checkpoint):
                progress.say(said)
            network = NetworkDescription.of(configuration, dataset, configured_threads())
            folder.write_network(network.to_dict())
            folder.write_partition(_described(dataset, partition, own))
            server = _Server(
                grid, federation, folder, evaluator, partition, test_partition, progress, log
            )
            if checkpoint:
                progress.say(f"going on after round {checkpoint.server_round}")
            elif keys.pretrain_examples:
                checkpoint = _pretrain(server)
            posterior = _run_rounds(server, checkpoint)
            _finish(server, posterior)
    return folder


@dataclass(frozen=True)
class _Server:
    """What the rounds of one run are made with.

    Attributes:
        grid: Flower's grid.
        federation: The nodes.
        folder: The run's folder.
        evaluator: Judges posteriors; it has the run's configuration and data set.
        partition: The examples of each client; None for nodes with data of their own.
        test_partition: Their test examples; None where clients do not judge.
        progress: What a person sees.
        log: Where rounds are logged live.
    """

    grid: Grid
    federation: Federation
    folder: RunFolder
    evaluator: Any
    partition: Sequence[Positions | None]
    test_partition: Sequence[Positions | None] | None
    progress: ProgressReport
    log: LiveLog

    @property
    def path(self) -> str:
        """The run's folder, absolute."""
        return str(self.folder.path.resolve())

    @property
    def configuration(self) -> Configuration:
        """The run's configuration."""
        configuration: Configuration = self.evaluator.configuration
        return configuration


def _pretrain(server: _Server) -> Checkpoint:
    """Return what the first round begins with: the pre-trained posterior, saved as round 0."""
    evaluator = server.evaluator
    pretraining = Pretraining(
        server.grid,
        server.federation,
        server.configuration,
        evaluator.dataset,
        evaluator.train_accuracy,
        server.path,
        run_key(server.folder.path),
        manifest=evaluator.manifest,
        held_back=evaluator.server_data.held_back if evaluator.server_data else None,
    )
    posterior = pretraining.run(
        evaluator.initial,
        lambda epoch: server.progress.say(
            f"pre-training, epoch {epoch.number}: validation accuracy {epoch.accuracy:.4f}"
        ),
    )
    checkpoint = Checkpoint(0, posterior, _first_state(server, posterior).to_arrays())
    Checkpoints(server.folder).save(checkpoint)
    return checkpoint


def _first_state(server: _Server, posterior: Posterior) -> ServerState:
    """Return the state before the first round, which begins with a posterior."""
    clients = server.federation.size
    begun = Method.of(server.configuration).begin(posterior, clients)
    return ServerState.first(posterior, clients, begun)


def _run_rounds(server: _Server, checkpoint: Checkpoint | None) -> Posterior:
    """Run the rounds that are left and return the final posterior.

    Raises:
        RunError: The federation could not go on; the message says how to resume.
    """
    keys = server.configuration.keys
    if checkpoint:
        state = ServerState.from_arrays(
            checkpoint.server_round, checkpoint.posterior, checkpoint.state
        )
    else:
        prior = server.configuration.prior
        state = _first_state(server, prior.first_posterior(server.evaluator.initial))
    best = _best_posterior(server) if server.evaluator.validates else None
    recorder = RoundRecorder(
        server.folder,
        server.progress,
        keys.evaluate_mc_samples,
        best=best,
        log=server.log,
        hidden=hidden_metrics(Method.of(server.configuration)),
    )
    strategy = make_strategy(
        server.configuration,
        server.evaluator.dataset.num_classes,
        server.partition,
        federation=server.federation,
        manifest=server.evaluator.manifest,
        test_partition=server.test_partition,
        server=own_server(server.evaluator),
        judge=judging(server.evaluator),
        run_folder=server.path,
        run_key=run_key(server.folder.path),
        state=state,
        on_round=recorder.record,
        on_warning=server.progress.say,
    )
    try:
        result = strategy.start(
            server.grid,
            posterior_to_arrays(state.posterior),
            # A run that has stopped early and is resumed has no rounds left.
            num_rounds=0 if best and best.exhausted() else keys.rounds,
            timeout=keys.client_timeout + SILENCE_BEYOND_TIMEOUT,
            evaluate_fn=evaluation(server.evaluator),
        )
    except RunError as error:
        raise RunError(f"{error}\n{_how_to_go_on(server.folder)}") from error
    return posterior_from_arrays(result.arrays)


def _how_to_go_on(folder: RunFolder) -> str:
    """Return what is said when a run ends early."""
    path = folder.path.resolve()
    return (
        f"all finished rounds are saved in {path}; go on from there with --resume {path}, or with "
        f'name="{path.name}" resume=true in the run configuration'
    )


def make_strategy(
    configuration: Configuration,
    num_classes: int,
    partition: Sequence[Positions | None],
    **more: Any,
) -> PosteriorPooling:
    """Return the configured Strategy: the subclass of its rule, with the other parts.

    Args:
        configuration: The run's configuration.
        num_classes: The number of classes.
        partition: The examples of each client; None for nodes with data of their own.
        more: Other arguments of the Strategy.
    """
    keys, method = configuration.keys, Method.of(configuration)
    return strategy_class(type(method.pooling))(
        rule=method.pooling,
        weighting=method.weighting,
        defence=method.defence,
        sampling=method.sampling,
        server_optimizer=method.server_optimizer,
        broadcast=method.outgoing,
        exchange=method.exchange,
        refinement=method.refinement,
        sampler=method.sampler,
        predictive=method.predictive,
        parts=method.parts,
        scale_floor=method.scale_floor,
        configuration=json.dumps(configuration.values),
        num_classes=num_classes,
        partition=partition,
        clients=keys.clients,
        max_examples=keys.max_examples,
        seed=keys.seed,
        node_timeout=keys.node_timeout,
        min_clients=keys.min_clients,
        round_retries=keys.round_retries,
        **more,
    )


def _best_posterior(server: _Server) -> BestPosterior:
    configuration = server.configuration
    keys = configuration.keys
    return BestPosterior(
        server.folder,
        server.evaluator.manifest,
        configuration.best_metric,
        keys.patience,
        keys.rounds,
    )


def _finish(server: _Server, posterior: Posterior) -> None:
    """Judge the final posterior in full, and write and show all that is known of it."""
    folder, evaluator, progress = server.folder, server.evaluator, server.progress
    samples = server.configuration.keys.mc_samples
    if evaluator.validates:
        progress.say(_best_posterior(server).told())
    progress.say(f"final evaluation with {samples} Monte Carlo samples")
    folder.write_posterior(posterior, evaluator.manifest)
    predictions = evaluator.predict(posterior, samples=samples, purpose="final")
    test = evaluator.dataset
    numbers = write_evaluation(
        folder,
        predictions,
        test.test_labels,
        evaluator.configuration.values,
        posterior,
        ensemble=_last_ensemble(server),
    )
    if server.configuration.keys.judged_by == "clients":
        parts = server.test_partition
        table = judged_clients(folder.rounds(), predictions, test.test_labels, parts)
        folder.write_clients(table)
        numbers |= means_over_clients(table)
        progress.say(told(table))
    write_examples(folder, predictions, test.test_images, test.test_labels)
    if posterior.size:
        CollapseWatch(folder, progress.say).look(numbers, samples, FINAL_EVALUATION)
    figures = draw_all(folder)
    folder.write_metrics(numbers)
    server.log.end(numbers, figures)
    progress.console.print(metrics_table(numbers, samples))
    progress.say(f"figures: {', '.join(path.name for path in figures)}")
    progress.say(f"posterior SHA-256 {posterior.digest()}")
    progress.say(f"results are in {folder.path.resolve()}")


def _last_ensemble(server: _Server) -> JudgedEnsemble | None:
    """Return what the predictive's models of the last round predict; None for none."""
    last = Checkpoints(server.folder).latest()
    if last is None:
        return None
    state = ServerState.from_arrays(last.server_round, last.posterior, last.state)
    return judged_ensemble(server.evaluator, state)


def _described(
    dataset: Dataset, partition: Sequence[Positions | None], own: ServerData | None
) -> dict[str, Any]:
    """Return who holds what of the run's data set, for the run's folder."""
    known = [part for part in partition if part is not None]
    described = describe(dataset.train_labels, known, dataset.num_classes)
    if own and own.held_back.size:
        described["server"] = describe(dataset.train_labels, [own.held_back], dataset.num_classes)
    return described


def _tracked(folder: RunFolder) -> TrackedRun:
    path = folder.path
    return TrackedRun(path, path.name, run_key(path), folder.config())
