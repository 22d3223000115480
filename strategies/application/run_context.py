"""Context of one run's rounds and of its end: its Strategy, and the threads of its network.

TensorFlow adds the parts of a gradient in an order that follows from their number, and a process
keeps the number that it has begun with. How many operations are computed side by side changes no
bit: these are as many as there are CPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from flwr.serverapp import Grid

from bfl.closing.chain import most_rounds
from bfl.configuration import Configuration
from bfl.engine.resources import cpus_of_this_process
from bfl.errors import ConfigurationError, RunError
from bfl.experiments.results.best import BestPosterior
from bfl.experiments.results.progress import ProgressReport
from bfl.experiments.results.run_folder import BEST_POSTERIOR, RunFolder
from bfl.experiments.tracking import LiveLog
from bfl.federation.wire import Positions
from bfl.posteriors import Posterior
from strategies import strategy_class
from strategies.federation import Federation
from strategies.method import Method
from strategies.posterior_pooling import PosteriorPooling
from strategies.privacy import (
    PoolNoise,
    PrivacyAccount,
    begin_sums,
    privacy_account,
    sums_begun,
    sums_room,
)


def make_strategy(
    configuration: Configuration,
    num_classes: int,
    partition: Sequence[Positions | None],
    *,
    pool_noise: PoolNoise | None = None,
    **more: Any,
) -> PosteriorPooling:
    """Return the configured Strategy: the subclass of its rule, with the other parts.

    Args:
        partition: The examples of each client; None for nodes with data of their own.
        pool_noise: What is done to the pool where the server adds noise; by default nothing.
    """
    keys, method = configuration.keys, Method.of(configuration)
    parts = {part.name: getattr(method, part.name) for part in fields(method)}
    return strategy_class(type(method.pooling))(
        rule=parts.pop("pooling"),
        **{**parts, "pool_noise": pool_noise},
        configuration=configuration,
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


@dataclass(frozen=True)
class RunContext:
    """Context of one run's rounds.

    Attributes:
        evaluator: Evaluates posteriors, or stands for what does; it has the run's configuration and
            data set.
        partition: The examples of each client; None for nodes with data of their own.
        test_partition: Their test examples; None where none has its own.
        advice: What a person can do when the run ends early.
    """

    grid: Grid
    federation: Federation
    folder: RunFolder
    evaluator: Any
    partition: Sequence[Positions | None]
    test_partition: Sequence[Positions | None] | None
    progress: ProgressReport
    log: LiveLog
    advice: str

    @property
    def path(self) -> str:
        """The run's folder, absolute."""
        return str(self.folder.path.resolve())

    @property
    def configuration(self) -> Configuration:
        """The run's configuration."""
        configuration: Configuration = self.evaluator.configuration
        return configuration


def account_of(
    context: RunContext, finished: int, *, release: str = "", to_come: bool = False
) -> PrivacyAccount | None:
    """Return the account of the rounds so far, where the run has noise.

    Args:
        release: The word for a round of a closing's sums that is about to begin.
        to_come: Whether the run's closing is to come, and none of its rounds has begun.
    """
    federation, path = context.federation, context.folder.path
    room = most_rounds(context.configuration.closing) if to_come else 0
    return privacy_account(
        context.configuration,
        federation.size,
        path,
        finished,
        anew=federation.noise_anew,
        sums=sums_room([*sums_begun(path), *filter(None, [release])]) + room,
    )


def count_sums(context: RunContext, release: str) -> None:
    """Count a round of a closing's sums before anybody is asked; see ``begin_sums``."""
    if context.configuration.example_privacy.sums_noise is None:
        return
    following = account_of(context, len(context.folder.rounds()), release=release)
    if following:
        anew = context.federation.noise_anew
        begin_sums(context.folder.path, release, following, anew=anew)


def best_posterior(context: RunContext) -> BestPosterior:
    """Return what keeps the best posterior so far, where the server has images of its own."""
    configuration = context.configuration
    keys = configuration.keys
    return BestPosterior(
        context.folder,
        context.evaluator.manifest,
        keys.best_metric,
        keys.patience,
        keys.rounds,
    )


def posterior_to_close(context: RunContext, last: Posterior) -> Posterior:
    """Return the posterior whose network the closing finishes (``closing-posterior``).

    Raises:
        RunError: It is the best one, and there is none.
        DataError: The file of the best one is corrupt.
    """
    if context.configuration.keys.closing_posterior == "last":
        return last
    if not context.folder.holds(BEST_POSTERIOR):
        raise RunError(
            f"closing-posterior is 'best', and {context.folder.path} has no {BEST_POSTERIOR}: no "
            "round had a finite value of best-metric, or its posterior is lost; allowed: 'last'"
        )
    posterior, _ = context.folder.posterior(BEST_POSTERIOR)
    return posterior


def start_tensorflow(configuration: Configuration, client_threads: int | None) -> None:
    """Start TensorFlow in the server's process with the threads of a run.

    Where what the network computes enters the result, these are ``server-threads``, whatever the
    engine and the machine; elsewhere all that the process may use.

    Args:
        client_threads: The threads of clients in the same process; None: they have their own.

    Raises:
        ConfigurationError: The process computes with another number of threads.
    """
    from bfl.keras import configure, configured_threads

    if not configuration.server_network_decides:
        configure(cpus_of_this_process())
        return
    wanted = configuration.keys.server_threads
    if client_threads not in (None, wanted):
        raise ConfigurationError(
            f"server-threads is {wanted}, and the serial engine computes the server in the process "
            f"of its clients, which have {client_threads}; what the server learns would have other "
            f"bits. Allowed: server-threads={client_threads}, or num_cpus {wanted} a client in "
            "client_resources of the backend's configuration"
        )
    configure(wanted, cpus_of_this_process())
    if (has := configured_threads()) != wanted:
        raise ConfigurationError(
            f"server-threads is {wanted}, and TensorFlow already computes with {has} threads in "
            f"this process; what the server learns would have other bits. Allowed: a process of "
            f"its own, BFL_CPUS={wanted} in the environment before the process's first run, or "
            f"server-threads={has}"
        )
