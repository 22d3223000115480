"""A run from its configuration to its folder: federation, rounds, evaluation, figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp import Grid

from bfl import randomness
from bfl.configuration import Configuration
from bfl.datasets import Dataset, absent_classes
from bfl.datasets.cache import cached_dataset
from bfl.datasets.subset import train_positions, with_test_examples
from bfl.engine.resources import cpus_of_this_process, resident_memory
from bfl.engine.run import run_of
from bfl.errors import ConfigurationError, RunError
from bfl.partitions.manifest import describe
from bfl.posteriors import Posterior
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
from bfl.wire import Positions, posterior_from_arrays, posterior_to_arrays
from strategies import strategy_class
from strategies.federation import Federation, discover
from strategies.method import Method
from strategies.posterior_pooling import PosteriorPooling, Round
from strategies.pretraining import Pretraining, split_off
from strategies.server_state import ServerState

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
        partition = split(configuration, dataset, federation)
        refuse_attackers(configuration, federation)
        name = keys.name or made_up_name(configuration)
        with open_run(configuration, name, describe_environment()) as (folder, checkpoint):
            engine_run.advise(_how_to_go_on(folder))
            progress.say(f"{federation.size} clients; the run's folder is {folder.path}")
            if said := lost_states(configuration, federation, checkpoint):
                progress.say(said)
            network = NetworkDescription.of(configuration, dataset, configured_threads())
            folder.write_network(network.to_dict())
            folder.write_partition(_described(dataset, partition))
            server = _Server(grid, federation, folder, evaluator, partition, progress)
            if checkpoint:
                progress.say(f"going on after round {checkpoint.server_round}")
            elif keys.pretrain_examples:
                checkpoint = _pretrain(server)
            posterior = _run_rounds(server, checkpoint)
            _finish(folder, evaluator, posterior, progress)
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


@dataclass(frozen=True)
class _Server:
    """What the rounds of one run are made with.

    Attributes:
        grid: Flower's grid.
        federation: The nodes.
        folder: The run's folder.
        evaluator: Judges posteriors; it has the run's configuration and data set.
        partition: The examples of each client; None for nodes with data of their own.
        progress: What a person sees.
    """

    grid: Grid
    federation: Federation
    folder: RunFolder
    evaluator: Any
    partition: Sequence[Positions | None]
    progress: ProgressReport

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
    recorder = _Recorder(server.folder, server.progress, keys.evaluate_mc_samples)
    strategy = make_strategy(
        server.configuration,
        server.evaluator.dataset.num_classes,
        server.partition,
        federation=server.federation,
        manifest=server.evaluator.manifest,
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
            num_rounds=keys.rounds,
            timeout=keys.client_timeout + SILENCE_BEYOND_TIMEOUT,
            evaluate_fn=_evaluation(server.configuration, server.evaluator),
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


def split(
    configuration: Configuration, dataset: Dataset, federation: Federation
) -> list[Positions | None]:
    """Return the examples of each client, by partition id; None for nodes with data of their own.

    Raises:
        ConfigurationError: The data cannot be split as configured.
    """
    keys = configuration.keys
    if all(federation.own_examples.values()):
        return [None] * federation.size
    used = train_positions(dataset, keys.train_examples)
    parts = configuration.partition.split(
        dataset.train_labels[used], federation.size, randomness.generator(keys.seed, "partition")
    )
    return [
        None if federation.own_examples[partition_id] else used[part]
        for partition_id, part in enumerate(parts)
    ]


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


class _Recorder:
    """Writes and shows each round.

    Args:
        folder: The run's folder.
        progress: What a person sees.
        samples: How many Monte Carlo samples the rounds are evaluated with.
    """

    def __init__(
        self,
        folder: RunFolder,
        progress: ProgressReport,
        samples: int = 1,
    ) -> None:
        self.folder = folder
        self.progress = progress
        self.watch = CollapseWatch(folder, progress.say)
        self.samples = samples
        self.checkpoints = Checkpoints(folder)

    def record(self, finished: Round) -> None:
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
        self.checkpoints.save(
            Checkpoint(finished.number, finished.posterior, finished.state.to_arrays())
        )
        self.progress.round(finished.number, finished.seconds, finished.metrics)
        if finished.posterior.size:
            self.watch.look(finished.metrics, self.samples, f"round {finished.number}")


def _evaluation(configuration: Configuration, evaluator: Any) -> Any:
    """Return Flower's ``evaluate_fn``: metrics of the rounds that are evaluated."""
    every = configuration.keys.evaluate_every

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        if not every or server_round % every:
            return None
        return MetricRecord(evaluator.metrics(posterior_from_arrays(arrays), server_round))

    return evaluate


def _finish(
    folder: RunFolder,
    evaluator: Any,
    posterior: Posterior,
    progress: ProgressReport,
) -> None:
    """Judge the final posterior in full, and write and show all that is known of it."""
    samples = evaluator.configuration.keys.mc_samples
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
    progress.console.print(metrics_table(numbers, samples))
    progress.say(f"figures: {', '.join(path.name for path in figures)}")
    progress.say(f"posterior SHA-256 {posterior.digest()}")
    progress.say(f"results are in {folder.path.resolve()}")


def _described(dataset: Dataset, partition: Sequence[Positions | None]) -> dict[str, Any]:
    """Return who holds what of the run's data set, for the run's folder."""
    known = [part for part in partition if part is not None]
    return describe(dataset.train_labels, known, dataset.num_classes)


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
    used = train_positions(dataset, keys.train_examples)
    configuration.partition.check(len(used), dataset.num_classes, clients)
    if keys.pretrain_examples:
        split_off(dataset, keys.pretrain_examples, keys.pretrain_validation)
    side = min(dataset.image_shape[:2])
    if side < configuration.architecture.minimum_side:
        raise ConfigurationError(
            f"model '{configuration.words['model']}' takes images of at least "
            f"{configuration.architecture.minimum_side} pixels a side; those of dataset "
            f"'{keys.dataset}' have {side}"
        )
