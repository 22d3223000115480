"""A run from its configuration to its folder: federation, rounds, evaluation, figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.serverapp import Grid

from bfl.configuration import Configuration
from bfl.data.datasets import Dataset, absent_classes
from bfl.data.datasets.cache import cached_dataset
from bfl.data.datasets.server_data import ServerData
from bfl.data.datasets.subset import with_test_examples
from bfl.data.partitions.manifest import describe
from bfl.engine.flower.pauses import quick_pulls
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
from bfl.federation.outgoing import is_private
from bfl.federation.privacy.accountant import EPSILON
from bfl.federation.wire import Positions, posterior_from_arrays, posterior_to_arrays
from bfl.posteriors import Posterior
from strategies.configured import make_strategy
from strategies.data_digests import data_digests
from strategies.division import check_partition, own_test_positions, split
from strategies.federation import Federation, discover
from strategies.method import Method
from strategies.pool_sums import hidden_metrics
from strategies.pretraining import Pretraining
from strategies.privacy import (
    PrivacyAccount,
    check_no_moving_statistics,
    check_privacy,
    pool_noise,
    privacy_account,
)
from strategies.refusals import (
    check_own_images,
    lost_states,
    refuse_attackers,
    refuse_personal_models,
)
from strategies.round_recorder import RoundRecorder
from strategies.server_state import ServerState
from strategies.unjudged import Unjudged
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
    keys = configuration.keys
    engine_run = run_of(grid)
    quick_pulls()
    configuration.tracker.check()
    with ProgressReport(keys.rounds, follower=engine_run.follower) as progress:
        progress.say(configuration.title)
        whole = cached_dataset(keys.dataset, keys.data_dir)
        dataset = with_test_examples(whole, keys.test_examples)
        for text in absent_classes(dataset):
            progress.say(text)
        # Its networks are built while the clients' processes start.
        evaluator = _evaluator(configuration, dataset)
        check_privacy(configuration)
        federation = discover(
            grid,
            keys.clients,
            keys.node_timeout,
            plugins=keys.plugins,
            private=is_private(configuration.outgoing),
        )
        configuration = evaluator.configuration = configuration.replace(clients=federation.size)
        if isinstance(evaluator, Unjudged):
            evaluator.ask(grid, federation, progress.say)
        check_no_moving_statistics(configuration, evaluator.manifest)
        own = evaluator.server_data = server_data(configuration, dataset, federation)
        check_own_images(configuration, dataset, own)
        if not all(federation.own_examples.values()):
            check_partition(configuration, dataset, own, federation.size)
        partition = split(configuration, dataset, federation, own)
        test_partition = own_test_positions(configuration, dataset, partition)
        refuse_attackers(configuration, federation)
        refuse_personal_models(configuration, federation.size, dataset.image_shape)
        name = keys.name or made_up_name(configuration)
        with (
            open_run(
                configuration, name, describe_environment(), data_digests(whole, federation, own)
            ) as (folder, checkpoint),
            live_log(configuration.tracker, _tracked(folder), folder.rounds(), progress.say) as log,
        ):
            engine_run.advise(_how_to_go_on(folder))
            progress.say(f"{federation.size} clients; the run's folder is {folder.path}")
            if said := lost_states(configuration, federation, checkpoint):
                progress.say(said)
            threads = None if isinstance(evaluator, Unjudged) else _threads()
            folder.write_network(NetworkDescription.of(configuration, dataset, threads).to_dict())
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


def _evaluator(configuration: Configuration, dataset: Dataset) -> Any:
    """Return what judges posteriors; without TensorFlow, what stands for it."""
    if not configuration.keys.server_evaluates:
        return Unjudged(configuration, dataset)
    from bfl.experiments.run.evaluator import Evaluator
    from bfl.keras import configure

    configure(cpus_of_this_process())
    return Evaluator(configuration, dataset)


def _threads() -> int | None:
    from bfl.keras import configured_threads

    return configured_threads()


@dataclass(frozen=True)
class _Server:
    """What the rounds of one run are made with.

    Attributes:
        grid: Flower's grid.
        federation: The nodes.
        folder: The run's folder.
        evaluator: Judges posteriors, or stands for what does; it has the run's configuration and
            data set.
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
        privacy=_account(server, state.server_round),
        hidden=hidden_metrics(Method.of(server.configuration)),
    )
    strategy = make_strategy(
        server.configuration,
        server.evaluator.dataset.num_classes,
        server.partition,
        federation=server.federation,
        manifest=server.evaluator.manifest,
        test_partition=server.test_partition,
        pool_noise=pool_noise(server.configuration, anew=server.federation.noise_anew),
        **_judges(server.evaluator),
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
            num_rounds=0
            if (best and best.exhausted()) or not recorder.begin(state.server_round + 1)
            else keys.rounds,
            timeout=keys.client_timeout + SILENCE_BEYOND_TIMEOUT,
            evaluate_fn=evaluation(server.evaluator) if keys.server_evaluates else None,
        )
    except RunError as error:
        raise RunError(f"{error}\n{_how_to_go_on(server.folder)}") from error
    return posterior_from_arrays(result.arrays)


def _judges(evaluator: Any) -> dict[str, Any]:
    """Return what the Strategy judges with; nothing where the server judges nothing."""
    if isinstance(evaluator, Unjudged):
        return {}
    return {"server": own_server(evaluator), "judge": judging(evaluator)}


def _account(server: _Server, finished: int) -> PrivacyAccount | None:
    """Return the account of the rounds so far, where the run has noise."""
    federation = server.federation
    return privacy_account(
        server.configuration,
        federation.size,
        server.folder.path,
        finished,
        anew=federation.noise_anew,
    )


def _how_to_go_on(folder: RunFolder) -> str:
    """Return what is said when a run ends early."""
    path = folder.path.resolve()
    return (
        f"all finished rounds are saved in {path}; go on from there with --resume {path}, or with "
        f'name="{path.name}" resume=true in the run configuration'
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
    """Judge the final posterior in full if the server does, and write and show what is known."""
    folder, evaluator, progress = server.folder, server.evaluator, server.progress
    samples = server.configuration.keys.mc_samples
    if evaluator.validates:
        progress.say(_best_posterior(server).told())
    folder.write_posterior(posterior, evaluator.manifest)
    numbers: dict[str, float] = {}
    right = None
    if not (isinstance(evaluator, Unjudged) or server.configuration.shared.partial):
        progress.say(f"final evaluation with {samples} Monte Carlo samples")
        numbers, right = _judge(server, posterior, samples)
    if server.configuration.keys.judged_by == "clients":
        table = judged_clients(folder.rounds(), right, server.test_partition)
        folder.write_clients(table)
        numbers |= means_over_clients(table)
        progress.say(told(table))
    if account := _account(server, len(folder.rounds())):
        numbers |= {EPSILON: account.epsilon()}
    figures = draw_all(folder)
    folder.write_metrics(numbers)
    server.log.end(numbers, figures)
    if numbers:
        progress.console.print(metrics_table(numbers, samples))
    progress.say(f"figures: {', '.join(path.name for path in figures)}")
    progress.say(f"posterior SHA-256 {posterior.digest()}")
    progress.say(f"results are in {folder.path.resolve()}")


def _judge(
    server: _Server, posterior: Posterior, samples: int
) -> tuple[dict[str, float], npt.NDArray[np.bool_]]:
    """Judge the final posterior on the test data, and write what it predicts.

    Returns:
        The metrics, and which test images are classified correctly.
    """
    folder, test = server.folder, server.evaluator.dataset
    predictions = server.evaluator.predict(posterior, samples=samples, purpose="final")
    numbers = write_evaluation(
        folder,
        predictions,
        test.test_labels,
        server.evaluator.configuration.values,
        posterior,
        ensemble=_last_ensemble(server),
    )
    write_examples(folder, predictions, test.test_images, test.test_labels)
    if posterior.size:
        CollapseWatch(folder, server.progress.say).look(numbers, samples, FINAL_EVALUATION)
    return numbers, predictions.predicted == test.test_labels


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
