"""The rounds of a run: what it lends its Strategy, and the record of each round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp import Grid

from bfl.closing.base import Known
from bfl.configuration import Configuration
from bfl.engine.run import run_of
from bfl.errors import LostStateError, RunError
from bfl.evaluation.evaluated_ensemble import ENSEMBLE
from bfl.evaluation.metrics import NOT_FINITE, count_not_finite
from bfl.experiments.results import clients, monitoring, summary, table
from bfl.experiments.results import run_folder as files
from bfl.experiments.run.resume import Checkpoint, Checkpoints
from bfl.federation import wire
from bfl.posteriors import Posterior
from bfl.printing import doing
from strategies import make_strategy, privacy
from strategies.application import evaluation
from strategies.application.data import RunData
from strategies.federation import Federation
from strategies.method import RunSupport
from strategies.server_state import Round, ServerState

SILENCE_BEYOND_TIMEOUT = 30.0
"""Seconds that the server waits longer than a client may take: for the message's way and back."""


@dataclass(kw_only=True)
class FederationRun(RunSupport):
    """A run whose folder is open: it makes the rounds that are left, and records each.

    Attributes:
        advice: What a person can do when the run ends early.
    """

    configuration: Configuration
    grid: Grid
    federation: Federation
    results: files.RunFolder
    evaluator: Any
    data: RunData
    progress: table.ProgressReport
    advice: str = ""

    def __post_init__(self) -> None:
        """Read what the rounds made so far have left."""
        keys = self.configuration.keys
        self.manifest = self.evaluator.manifest
        self.test_partition = self.data.test if keys.evaluated_by == "clients" else None
        self.folder = str(self.results.path.resolve())
        self.checkpoints = Checkpoints(self.results)
        self.privacy: privacy.PrivacyAccount | None = None
        self._left_out: Sequence[Mapping[str, Any]] = ()

    def make_rounds(
        self, checkpoint: Checkpoint | None, initial: Posterior
    ) -> tuple[ServerState, Known | None]:
        """Make the rounds that are left; return where they end, and what the closing found.

        Args:
            checkpoint: Where the run stands; None: before its first round.
            initial: What the first round begins with.
        """
        keys = self.configuration.keys
        self.key = files.run_key(self.results.path)
        self.pool_noise = privacy.pool_noise(self.configuration, anew=self.federation.noise_anew)
        self.server = self.evaluator.server
        finished, posterior = 0, initial
        if checkpoint:
            finished, posterior = checkpoint.server_round, checkpoint.posterior
            self.state = ServerState.from_arrays(finished, posterior, checkpoint.state)
        self.privacy = privacy.privacy_account(
            self.configuration,
            self.federation.size,
            self.results.path,
            finished,
            anew=self.federation.noise_anew,
        )
        classes = self.data.dataset.num_classes
        strategy = make_strategy(self.configuration, classes, self.data.train, self)
        over = not self.begin(finished + 1)
        try:
            strategy.start(
                self.grid,
                wire.posterior_to_arrays(posterior),
                num_rounds=0 if over else keys.rounds,
                timeout=keys.client_timeout + SILENCE_BEYOND_TIMEOUT,
                evaluate_fn=self.evaluate,
            )
        except LostStateError as error:
            path = self.results.path.resolve()
            raise LostStateError(
                f"{error}\ngoing on does not bring back what is lost; begin the run again: under "
                f"another name, with --run-config {path / files.CONFIG} --name NAME, or, when "
                f"{path} has been removed, by the command that began it"
            ) from error
        except RunError as error:
            gone = "" if self.results.holds(files.CONFIG) else f"put {self.folder} back, and then: "
            raise RunError(f"{error}\n{gone}{self.advice}") from error
        self.clients = strategy.clients
        return strategy.state, strategy.closed

    def evaluate(self, server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        """Return test metrics where they are due, and validation metrics every round.

        Where logits are not finite, ``logits-not-finite`` stands in the metrics' place.
        """
        if not server_round:  # a run's record begins with round 1
            return None
        every = self.configuration.keys.evaluate_every
        due: dict[str, Callable[[Posterior, int], dict[str, float]]] = {}
        if every and server_round % every == 0 and not self.configuration.shared.partial:
            due[""] = self.evaluator.metrics
        if self.evaluator.validates:
            due[table.VALIDATION] = self.evaluator.validation_metrics
        if not due:
            return None
        posterior = wire.posterior_from_arrays(arrays)
        metrics: dict[str, float] = {}
        for prefix, measure in due.items():
            with count_not_finite(metrics, prefix):
                metrics |= measure(posterior, server_round)
        return MetricRecord(dict(metrics))

    def end_round(self, finished: Round) -> bool:
        """Write and show a round; return whether it was the last one, whatever ``rounds`` says.

        Raises:
            RunError: The pool is of no use, and the round is not saved; or the user's ``on_round``
                raised an error, and it is.
        """
        number, posterior = finished.number, finished.posterior
        counts = (f"{of}{NOT_FINITE}" for of in ("", table.VALIDATION))
        if bad := max(finished.metrics.get(name, 0.0) for name in counts):
            who = f"; farthest from the others, {finished.farthest}" if finished.farthest else ""
            raise RunError(
                f"round {number}: {bad:g} of the pool's logits are not finite, as a client may "
                f"have sent too large values{who}; nothing of this round is kept. A resumed run "
                "meets that client again; begin one without its node, or with "
                "defence='winsorization'"
            )
        metrics = dict(finished.metrics)
        every = self.configuration.keys.evaluate_every
        if every and number % every == 0:
            with count_not_finite(metrics, ENSEMBLE):
                ensemble = evaluation.evaluate_models(self.evaluator, finished.state)
                metrics |= ensemble.round_metrics(self.configuration.values) if ensemble else {}
        metrics |= self.privacy.epsilons() if self.privacy else {}
        hidden = privacy.hide_numbers(self.configuration)
        entry = {
            "round": number,
            "seconds": finished.seconds,
            "server-memory": psutil.Process().memory_info().rss / 1e6,
            **metrics,
            **hidden,
            **summary.describe_posterior(posterior),
            "posterior-sha256": posterior.digest(),
            files.PER_CLIENT: [
                {name: value for name, value in client.items() if name not in hidden}
                for client in finished.clients
            ],
        }
        if finished.left_out:
            entry[clients.CLIENTS_LEFT_OUT] = [*finished.left_out]
            if finished.left_out != self._left_out:
                without = ", ".join(f"{e['name']} ({e['reason']})" for e in finished.left_out)
                pooled = len(finished.clients)
                self.progress.say(
                    f"round {number} goes on with {pooled} of {pooled + len(finished.left_out)} "
                    f"clients, without {without}"
                )
        self._left_out = finished.left_out
        # The record first: one whose checkpoint is missing is dropped and made again by a resume.
        self.results.append_round(entry)
        self.checkpoints.save(Checkpoint(number, posterior, finished.state.to_arrays()))
        self.progress.round(number, finished.seconds, metrics)
        if posterior.size:
            samples = self.configuration.keys.evaluate_mc_samples
            when, say = f"round {number}", self.progress.say
            monitoring.warn_of_collapse(self.results, metrics, samples, when, say)
        on_round = run_of(self.grid).on_round
        try:
            on_round(number, metrics, posterior)
        except Exception as error:
            name = getattr(on_round, "__qualname__", repr(on_round))
            raise RunError(f"on_round, {name}, raised in round {number}: {error!r}") from error
        return not self.begin(number + 1)

    def begin(self, server_round: int) -> bool:
        """Account a round before it begins; return whether the privacy budget lets it."""
        rounds = self.configuration.keys.rounds
        doing(f"round {server_round}/{rounds}" if server_round <= rounds else "the run ends")
        if self.privacy is None or self.privacy.begin(server_round):
            return True
        if reason := self.privacy.reason_to_stop(server_round):
            self.progress.say(reason)
            self.results.append_warning(f"round {server_round - 1}: {reason}")
        return False

    def warn(self, text: str) -> None:
        """Show what has gone wrong with clients, and write it into the run's folder."""
        self.progress.say(text)
        self.results.append_text(files.REFUSALS, text)

    def show_sums(self, line: str) -> None:
        """Show a line on a round of the closing's sums."""
        self.progress.say(line)
