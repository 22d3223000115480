"""Context of one run's rounds and of its end, and the record of each finished round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.serverapp import Grid

from bfl.aggregation import precision_spread
from bfl.closing.chain import schedule
from bfl.configuration import Configuration
from bfl.engine.resources import resident_memory
from bfl.engine.run import OnRound
from bfl.errors import RunError
from bfl.experiments.results.clients import CLIENTS_LEFT_OUT
from bfl.experiments.results.monitoring import VALIDATION, BestPosterior, CollapseWatch
from bfl.experiments.results.run_folder import BEST_POSTERIOR, PER_CLIENT, RunFolder
from bfl.experiments.results.summary import describe_posterior, deviations_by_layer
from bfl.experiments.results.table import ProgressReport
from bfl.experiments.run.resume import Checkpoint, Checkpoints
from bfl.experiments.tracking import LiveLog
from bfl.federation.client_metrics import NUM_EXAMPLES
from bfl.federation.outgoing import is_private
from bfl.federation.wire import Positions
from bfl.posteriors import Posterior
from strategies import privacy
from strategies.federation import Federation
from strategies.method import Method
from strategies.run_support import NOT_FINITE
from strategies.server_state import Round, ServerState
from strategies.updates import ImplausibleUpdatesError


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
        return self.evaluator.configuration  # type: ignore[no-any-return]


def first_state(context: RunContext, posterior: Posterior) -> ServerState:
    """Return the state before the first round, with what the method's parts begin with."""
    clients = context.federation.size
    parts = Method.of(context.configuration).begin_server_states(posterior, clients)
    return ServerState.first(posterior, clients, parts)


def account_of(
    context: RunContext, finished: int, *, release: str = "", to_come: bool = False
) -> privacy.PrivacyAccount | None:
    """Return the account of the rounds so far, where the run has noise.

    Args:
        release: The word for a round of a closing's sums that is about to begin.
        to_come: Whether the run's closing is to come, and none of its rounds has begun.
    """
    federation, path = context.federation, context.folder.path
    room = len(schedule(context.configuration.closing)) if to_come else 0
    begun = [*privacy.read_begun_sums(path), *filter(None, [release])]
    return privacy.privacy_account(
        context.configuration,
        federation.size,
        path,
        finished,
        anew=federation.noise_anew,
        sums=privacy.count_sums_room(begun) + room,
    )


def count_sums(context: RunContext, release: str) -> None:
    """Count a round of a closing's sums before anybody is asked; see ``privacy.begin_sums``."""
    if context.configuration.example_privacy.sums_noise is None:
        return
    following = account_of(context, len(context.folder.rounds()), release=release)
    if following:
        anew = context.federation.noise_anew
        privacy.begin_sums(context.folder.path, release, following, anew=anew)


def best_posterior(context: RunContext) -> BestPosterior:
    """Return what keeps the best posterior so far, where the server has images of its own."""
    keys, manifest = context.configuration.keys, context.evaluator.manifest
    return BestPosterior(context.folder, manifest, keys.best_metric, keys.patience, keys.rounds)


def posterior_to_close(context: RunContext, last: Posterior) -> Posterior:
    """Return the posterior whose network the closing round closes (``closing-posterior``).

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


def hidden_numbers(configuration: Configuration) -> dict[str, str]:
    """Return what a round's record says in place of numbers that nobody knows, or shall know."""
    names = [NUM_EXAMPLES] if is_private(configuration.outgoing) else []
    if configuration.exchange.secure_sums:
        names += ["effective-clients", "largest-weight"]
        names += (
            [precision_spread.SPREAD, precision_spread.DISTANCE]
            if configuration.pooling.by_precision
            else []
        )
    return dict.fromkeys(names, "hidden")


LEARNT, GUESSED = 0.2, 0.05
"""Shares of the way from guessing to no error: a pool beyond the first has learnt, and one below
the second guesses. Honest clients of one class each may lead there: that alone ends no run."""


def _sent(suspicion: Mapping[int, str]) -> str:
    return "".join(f"; client {client} sent {what}" for client, what in suspicion.items())


def _without(suspicion: Mapping[int, str], problem: str) -> ImplausibleUpdatesError:
    return ImplausibleUpdatesError(
        {client: f"it sent {what}, and {problem}" for client, what in suspicion.items()}
    )


class RoundRecorder:
    """Writes and shows each round.

    Args:
        context: The run.
        best: Keeps the best posterior, where the server has images of its own.
        account: Computes the run's ε, where it has noise.
        on_round: What the user calls with each round's number, metrics and posterior.
    """

    def __init__(
        self,
        context: RunContext,
        best: BestPosterior | None = None,
        account: privacy.PrivacyAccount | None = None,
        on_round: OnRound = lambda *_: None,
    ) -> None:
        configuration, folder = context.configuration, context.folder
        self.folder, self.progress, self.log = folder, context.progress, context.log
        self.watch = CollapseWatch(folder, self.progress.say)
        self.samples = configuration.keys.evaluate_mc_samples
        self.manifest = context.evaluator.manifest
        self.best, self.privacy, self.on_round = best, account, on_round
        self.checkpoints = Checkpoints(folder)
        self.hidden = hidden_numbers(configuration)
        # A run that measures an attack may end where it guesses.
        self.chance = None
        if configuration.attack.idle and configuration.keys.task == "classification":
            self.chance = 1.0 / context.evaluator.dataset.num_classes
        self._left_out: Sequence[Mapping[str, Any]] = ()
        self._accuracies = [e["accuracy"] for e in folder.rounds() if "accuracy" in e]

    def record(self, finished: Round) -> bool:
        """Write and show a round; return whether it was the last one, whatever ``rounds`` says.

        Raises:
            RunError: The pool is of no use, and the round is not saved; or the user's ``on_round``
                raised an error, and it is.
        """
        self._refuse_useless(finished)
        known = self.privacy.epsilons() if self.privacy else {}
        metrics = {**finished.metrics, **known}
        entry = {
            "round": finished.number,
            "seconds": finished.seconds,
            "server-memory": resident_memory(),
            **metrics,
            **self.hidden,
            **describe_posterior(finished.posterior),
            **(deviations_by_layer(finished.posterior, self.manifest) if self.manifest else {}),
            "posterior-sha256": finished.posterior.digest(),
            PER_CLIENT: [
                {name: value for name, value in client.items() if name not in self.hidden}
                for client in finished.clients
            ],
        }
        if finished.left_out:
            entry[CLIENTS_LEFT_OUT] = [*finished.left_out]
            if finished.left_out != self._left_out:
                without = ", ".join(f"{e['name']} ({e['reason']})" for e in finished.left_out)
                pooled = len(finished.clients)
                self.progress.say(
                    f"round {finished.number} goes on with {pooled} of "
                    f"{pooled + len(finished.left_out)} clients, without {without}"
                )
        self._left_out = finished.left_out
        # The record first: one whose checkpoint is missing is dropped and made again by a resume.
        self.folder.append_round(entry)
        self.checkpoints.save(
            Checkpoint(finished.number, finished.posterior, finished.state.to_arrays())
        )
        # The best posterior behind both, so that it is never that of a round which is dropped; a
        # resume looks at the checkpoint's again.
        stop = self.best is not None and self.best.look(finished.posterior)
        self.progress.round(finished.number, finished.seconds, metrics)
        if self.log:
            self.log.round(entry)
        if finished.posterior.size:
            self.watch.look(finished.metrics, self.samples, f"round {finished.number}")
        try:
            self.on_round(finished.number, metrics, finished.posterior)
        except Exception as error:
            name = getattr(self.on_round, "__qualname__", repr(self.on_round))
            where = f"on_round, {name}, raised in round {finished.number}"
            raise RunError(f"{where}: {error!r}") from error
        return stop or not self.begin(finished.number + 1)

    def _refuse_useless(self, finished: Round) -> None:
        """Refuse a pool whose predictions are not finite, or guess after they were good.

        Raises:
            ImplausibleUpdatesError: A client's values were far from all others': the round is made
                again without its update. With noise for privacy, which is counted once a round, and
                where nobody's values were, a pool that is not finite is a RunError instead; one
                that guesses is a warning then.
        """
        metrics, suspicion = finished.metrics, finished.suspicion
        where = f"round {finished.number}"
        if bad := max(metrics.get(f"{of}{NOT_FINITE}", 0.0) for of in ("", VALIDATION)):
            problem = f"{bad:g} of the logits that the pool predicts are not finite"
            if not suspicion or self.privacy:
                raise RunError(
                    f"{where}: {problem}; nothing of this round is kept{_sent(suspicion)}"
                )
            raise _without(suspicion, problem)
        accuracy = metrics.get("accuracy")
        if accuracy is None or self.chance is None:
            return
        room, best = 1.0 - self.chance, max(self._accuracies, default=0.0)
        if accuracy < self.chance + GUESSED * room:
            learnt = best > self.chance + LEARNT * room
            problem = f"the pool guesses: accuracy {accuracy:.3g}"
            problem += f", {best:.3g} at best before" if learnt else ""
            if learnt and suspicion and not self.privacy:
                raise _without(suspicion, problem)
            if learnt or suspicion:
                problem = f"{where}: {problem}{_sent(suspicion)}"
                self.progress.say(f"warning: {problem}")
                self.folder.append_warning(problem)
        self._accuracies.append(accuracy)

    def begin(self, server_round: int) -> bool:
        """Account a round before it begins; return whether the privacy budget lets it.

        Raises:
            OSError: It cannot be written down.
        """
        if self.privacy is None or self.privacy.begin(server_round):
            return True
        if reason := self.privacy.reason_to_stop(server_round):
            self.progress.say(reason)
            self.folder.append_warning(f"round {server_round - 1}: {reason}")
        return False
