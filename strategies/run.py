"""A run from its configuration to its folder: federation, rounds, evaluation, figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from flwr.serverapp import Grid

from bfl import randomness
from bfl.configuration import Configuration
from bfl.datasets import Dataset, absent_classes
from bfl.datasets.cache import cached_dataset
from bfl.datasets.server_data import ServerData, without
from bfl.datasets.subset import train_positions, with_test_examples
from bfl.engine.resources import cpus_of_this_process, resident_memory
from bfl.engine.run import run_of
from bfl.errors import ConfigurationError, RunError
from bfl.partitions.manifest import describe
from bfl.posteriors import Posterior
from bfl.results.best import BestPosterior
from bfl.results.collapse import CollapseWatch
from bfl.results.environment import describe_environment
from bfl.results.examples import write_examples
from bfl.results.figures import draw_all
from bfl.results.identity import run_key
from bfl.results.network import NetworkDescription
from bfl.results.progress import ProgressReport
from bfl.results.resume import Checkpoint, Checkpoints, check_output, open_run
from bfl.results.run_folder import PER_CLIENT, RunFolder
from bfl.results.run_name import made_up_name
from bfl.results.summary import describe_posterior, write_evaluation
from bfl.results.table import metrics_table
from bfl.tracking import LiveLog, TrackedRun, live_log
from bfl.wire import Positions, posterior_from_arrays, posterior_to_arrays
from strategies import strategy_class
from strategies.federation import Federation, discover
from strategies.posterior_pooling import PosteriorPooling, Round
from strategies.pretraining import Pretraining, split_off
from strategies.validation import evaluation, server_data

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
    from bfl.keras import configure, configured_threads
    from bfl.prediction.evaluation import Evaluator

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
        federation = discover(grid, keys.clients, keys.node_timeout)
        configuration = evaluator.configuration = configuration.replace(clients=federation.size)
        own = evaluator.server_data = server_data(configuration, dataset, federation)
        partition = split(configuration, dataset, federation, own)
        refuse_attackers(configuration, federation)
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
            strategy = make_strategy(configuration, dataset, partition)
            strategy.federation = federation
            strategy.manifest = evaluator.manifest
            strategy.run_folder = str(folder.path.resolve())
            strategy.run_key = run_key(folder.path)
            recorder = _Recorder(
                folder,
                progress,
                strategy,
                keys.evaluate_mc_samples,
                best=_best_posterior(folder, evaluator) if own else None,
                log=log,
            )
            strategy.on_round = recorder.record
            strategy.on_warning = progress.say
            if checkpoint:
                progress.say(f"going on after round {checkpoint.server_round}")
            elif keys.pretrain_examples:
                checkpoint = _pretrain(grid, strategy, folder, evaluator, progress)
            posterior = _run_rounds(grid, strategy, folder, evaluator, checkpoint)
            _finish(folder, evaluator, posterior, progress, log)
    return folder


def refuse_attackers(configuration: Configuration, federation: Federation) -> None:
    """Refuse hostile clients on nodes that do not play any.

    Raises:
        ConfigurationError: There are such nodes; the message names them.
    """
    refusing = [
        f"partition {partition_id} (node {node})"
        for partition_id, node in federation.nodes.items()
        if configuration.attacks(partition_id) and partition_id not in federation.attackable
    ]
    if refusing:
        raise ConfigurationError(
            f"attack is '{configuration.attack.name}' with attackers = "
            f"{configuration.keys.attackers}, which {', '.join(refusing)} will not play: only "
            "simulated nodes do, and SuperNodes whose node configuration has allow-attack=true"
        )


def lost_states(
    configuration: Configuration, federation: Federation, checkpoint: Checkpoint | None
) -> str:
    """Return what there is to say of clients whose state ends with Flower's run, or nothing.

    Raises:
        ConfigurationError: The run is one to go on with, and such states are lost.
    """
    stateless = [str(p) for p in federation.nodes if p not in federation.stateful]
    if configuration.keys.optimizer_state != "keep" or not stateless:
        return ""
    nodes = f"the SuperNodes of partitions {', '.join(stateless)} have no state-dir"
    if checkpoint and 0 < checkpoint.server_round < configuration.keys.rounds:
        raise ConfigurationError(
            f"optimizer-state is 'keep' and {nodes}: what their optimizers kept has ended with the "
            "run that was interrupted, so going on would not give its result"
        )
    return (
        f"optimizer-state is 'keep' and {nodes}: this run cannot be resumed, and the client of a "
        "SuperNode that is restarted begins anew"
    )


def _pretrain(
    grid: Grid,
    strategy: PosteriorPooling,
    folder: RunFolder,
    evaluator: Any,
    progress: ProgressReport,
) -> Checkpoint:
    """Return what the first round begins with: the pre-trained posterior, saved as round 0."""
    assert strategy.federation is not None
    pretraining = Pretraining(
        grid,
        strategy.federation,
        evaluator.configuration,
        evaluator.dataset,
        evaluator.train_accuracy,
        strategy.run_folder,
        strategy.run_key,
        manifest=evaluator.manifest,
        held_back=evaluator.server_data.held_back if evaluator.server_data else None,
    )
    posterior = pretraining.run(
        evaluator.initial,
        lambda epoch: progress.say(
            f"pre-training, epoch {epoch.number}: validation accuracy {epoch.accuracy:.4f}"
        ),
    )
    checkpoint = Checkpoint(0, posterior, strategy.state())
    Checkpoints(folder).save(checkpoint)
    return checkpoint


def _run_rounds(
    grid: Grid,
    strategy: PosteriorPooling,
    folder: RunFolder,
    evaluator: Any,
    checkpoint: Checkpoint | None,
) -> Posterior:
    """Run the rounds that are left and return the final posterior.

    Raises:
        RunError: The federation could not go on; the message says how to resume.
    """
    configuration: Configuration = evaluator.configuration
    posterior = evaluator.initial
    # A run that has stopped early and is resumed has no rounds left.
    over = evaluator.server_data and _best_posterior(folder, evaluator).exhausted()
    if checkpoint:
        posterior = checkpoint.posterior
        strategy.first_round = checkpoint.server_round + 1
        strategy.load_state(checkpoint.state)
    try:
        result = strategy.start(
            grid,
            posterior_to_arrays(posterior),
            num_rounds=0 if over else configuration.keys.rounds,
            timeout=configuration.keys.client_timeout + SILENCE_BEYOND_TIMEOUT,
            evaluate_fn=evaluation(evaluator),
        )
    except RunError as error:
        raise RunError(f"{error}\n{_how_to_go_on(folder)}") from error
    return posterior_from_arrays(result.arrays)


def _how_to_go_on(folder: RunFolder) -> str:
    """Return what is said when a run ends early."""
    path = folder.path.resolve()
    return (
        f"all finished rounds are saved in {path}; go on from there with --resume {path}, or with "
        f'name="{path.name}" resume=true in the run configuration'
    )


def split(
    configuration: Configuration,
    dataset: Dataset,
    federation: Federation,
    own: ServerData | None = None,
) -> list[Positions | None]:
    """Return the examples of each client, by partition id; None for nodes with data of their own.

    Args:
        configuration: The run's configuration.
        dataset: Its data set.
        federation: The nodes.
        own: The server's own images, which no client gets.

    Raises:
        ConfigurationError: The data cannot be split as configured.
    """
    keys = configuration.keys
    if all(federation.own_examples.values()):
        return [None] * federation.size
    used = _clients_positions(configuration, dataset, own)
    parts = configuration.partition.split(
        dataset.train_labels[used], federation.size, randomness.generator(keys.seed, "partition")
    )
    return [
        None if federation.own_examples[partition_id] else used[part]
        for partition_id, part in enumerate(parts)
    ]


def _clients_positions(
    configuration: Configuration, dataset: Dataset, own: ServerData | None
) -> Positions:
    """Return the positions of the training images that clients share."""
    used = train_positions(dataset, configuration.keys.train_examples)
    return without(used, own.held_back) if own else used


def make_strategy(
    configuration: Configuration, dataset: Dataset, partition: Sequence[Positions | None]
) -> PosteriorPooling:
    """Return the configured Strategy: the subclass of its rule, with its weighting."""
    keys = configuration.keys
    return strategy_class(type(configuration.pooling))(
        rule=configuration.pooling,
        weighting=configuration.weighting,
        defence=configuration.defence,
        configuration=json.dumps(configuration.values),
        num_classes=dataset.num_classes,
        partition=partition,
        clients=keys.clients,
        fraction_train=keys.fraction_train,
        max_examples=keys.max_examples,
        seed=keys.seed,
        node_timeout=keys.node_timeout,
        scale_floor=keys.scale_floor,
        min_clients=keys.min_clients,
        round_retries=keys.round_retries,
    )


def _best_posterior(folder: RunFolder, evaluator: Any) -> BestPosterior:
    configuration: Configuration = evaluator.configuration
    keys = configuration.keys
    return BestPosterior(
        folder, evaluator.manifest, configuration.best_metric, keys.patience, keys.rounds
    )


class _Recorder:
    """Writes and shows each round.

    Args:
        folder: The run's folder.
        progress: What a person sees.
        strategy: Whose state the checkpoints hold.
        samples: How many Monte Carlo samples the rounds are evaluated with.
        best: Keeps the best posterior, where the server has images of its own.
        log: Where rounds are logged besides.
    """

    def __init__(
        self,
        folder: RunFolder,
        progress: ProgressReport,
        strategy: PosteriorPooling,
        samples: int = 1,
        *,
        best: BestPosterior | None = None,
        log: LiveLog | None = None,
    ) -> None:
        self.folder = folder
        self.progress = progress
        self.strategy = strategy
        self.watch = CollapseWatch(folder, progress.say)
        self.samples = samples
        self.best = best
        self.log = log
        self.checkpoints = Checkpoints(folder)

    def record(self, finished: Round) -> bool:
        """Write and show a round; return whether it was the last one, whatever ``rounds`` says."""
        entry = {
            "round": finished.number,
            "seconds": finished.seconds,
            "server-memory": resident_memory(),
            **finished.metrics,
            **describe_posterior(finished.posterior),
            "posterior-sha256": finished.posterior.digest(),
            PER_CLIENT: finished.clients,
        }
        # The record first: one whose checkpoint is missing is dropped and made again by a resume.
        self.folder.append_round(entry)
        stop = self.best is not None and self.best.look(finished.posterior)
        self.checkpoints.save(
            Checkpoint(finished.number, finished.posterior, self.strategy.state())
        )
        self.progress.round(finished.number, finished.seconds, finished.metrics)
        if self.log:
            self.log.round(entry)
        if finished.posterior.size:
            self.watch.look(finished.metrics, self.samples, f"round {finished.number}")
        return stop


def _finish(
    folder: RunFolder,
    evaluator: Any,
    posterior: Posterior,
    progress: ProgressReport,
    log: LiveLog,
) -> None:
    """Judge the final posterior in full, and write and show all that is known of it."""
    samples = evaluator.configuration.keys.mc_samples
    if evaluator.server_data:
        progress.say(_best_posterior(folder, evaluator).told())
    progress.say(f"final evaluation with {samples} Monte Carlo samples")
    folder.write_posterior(posterior, evaluator.manifest)
    predictions = evaluator.predict(posterior, samples=samples, purpose="final")
    numbers = write_evaluation(
        folder,
        predictions,
        evaluator.dataset.test_labels,
        evaluator.configuration.values,
        posterior,
    )
    test = evaluator.dataset
    write_examples(folder, predictions, test.test_images, test.test_labels)
    if posterior.size:
        CollapseWatch(folder, progress.say).look(numbers, samples, "final evaluation")
    figures = draw_all(folder)
    log.end(numbers, figures)
    progress.console.print(metrics_table(numbers, samples))
    progress.say(f"figures: {', '.join(path.name for path in figures)}")
    progress.say(f"posterior SHA-256 {posterior.digest()}")
    progress.say(f"results are in {folder.path.resolve()}")


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


def check_before_start(configuration: Configuration, clients: int) -> None:
    """Raise whatever can be known to be wrong before an engine is started.

    Raises:
        ConfigurationError: The run's folder cannot be made or gone on with, the data cannot be
            split as configured, or they are too small for the model.
        DataError: The data are not what their format promises.
    """
    keys = configuration.keys
    check_output(configuration)
    dataset = cached_dataset(keys.dataset, keys.data_dir)
    with_test_examples(dataset, keys.test_examples)
    configuration.tracker.check()
    own = server_data(configuration, dataset)
    used = _clients_positions(configuration, dataset, own)
    configuration.partition.check(len(used), dataset.num_classes, clients)
    if keys.pretrain_examples:
        held_back = own.held_back if own else None
        split_off(dataset, keys.pretrain_examples, keys.pretrain_validation, held_back)
    side = min(dataset.image_shape[:2])
    if side < configuration.architecture.minimum_side:
        raise ConfigurationError(
            f"model '{keys.model}' takes images of at least "
            f"{configuration.architecture.minimum_side} pixels a side; those of dataset "
            f"'{keys.dataset}' have {side}"
        )
