"""The rounds of a run: the configured Strategy, what the run lends it, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from bfl.closing.base import Known
from bfl.configuration import Configuration
from bfl.engine.run import run_of
from bfl.errors import LostStateError, RunError
from bfl.experiments.results import run_folder as files
from bfl.experiments.results.run_folder import run_key
from bfl.experiments.run.resume import Checkpoint
from bfl.federation.wire import Positions, posterior_from_arrays, posterior_to_arrays
from bfl.posteriors import Posterior
from strategies import strategy_class
from strategies.application import evaluation, preflight, run_context
from strategies.application.run_context import RunContext
from strategies.method import GivenParts, Method
from strategies.posterior_pooling import PosteriorPooling
from strategies.privacy import pool_noise
from strategies.run_support import ClientOptions, RunSupport
from strategies.server_state import Round, ServerState

SILENCE_BEYOND_TIMEOUT = 30.0
"""Seconds that the server waits longer than a client may take: for the message's way and back."""


def run_rounds(
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

    support = ApplicationRun(
        context=context,
        recorder=recorder,
        manifest=context.evaluator.manifest,
        server=evaluation.own_server(context.evaluator) if keys.server_evaluates else None,
        pool_noise=pool_noise(context.configuration, anew=context.federation.noise_anew),
        federation=context.federation,
        state=state,
        folder=context.path,
        key=run_key(context.folder.path),
        test_partition=context.test_partition,
    )
    num_classes = context.evaluator.dataset.num_classes
    strategy = make_strategy(context.configuration, num_classes, context.partition, support)
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


@dataclass(kw_only=True)
class ApplicationRun(RunSupport):
    """Rounds of a Strategy, recorded and shown as those of a run."""

    context: RunContext
    recorder: run_context.RoundRecorder

    def warn(self, text: str) -> None:
        """Show a warning, and write it down."""
        self.context.progress.say(text)
        self.context.folder.append_text(files.REFUSALS, text)

    def show_replies(self, selected: int, counts: Mapping[str, int]) -> None:
        """Show what has become of a round so far, in a terminal."""
        if self.context.progress.is_live:
            self.context.progress.replied(selected, counts)

    def evaluate_models(self, state: ServerState) -> Mapping[str, float]:
        """Evaluate the predictive's models after a round."""
        return evaluation.evaluate_models(self.context.evaluator, state)

    def end_round(self, finished: Round) -> bool:
        """Record a round; return whether it is the last."""
        return self.recorder.record(finished)

    def posterior_to_close(self, last: Posterior) -> Posterior:
        """Return the posterior whose network the closing round closes."""
        return run_context.posterior_to_close(self.context, last)

    def begin_sums(self, release: str) -> None:
        """Count a round of the closing's sums."""
        run_context.count_sums(self.context, release)

    def show_sums(self, line: str) -> None:
        """Show a line on a round of the closing's sums."""
        self.context.progress.say(line)


def make_strategy(
    configuration: Configuration,
    num_classes: int,
    partition: Sequence[Positions | None],
    run: RunSupport = RunSupport(),  # noqa: B008
) -> PosteriorPooling:
    """Return the configured Strategy: the subclass of its rule, with the other parts.

    Args:
        partition: The examples of each client; None for nodes with data of their own.
        run: What the run lends it besides.
    """
    keys, method = configuration.keys, Method.of(configuration)
    given: dict[str, Any] = {
        part.name: getattr(method, part.name, None) for part in fields(GivenParts)
    }
    return strategy_class(type(method.pooling))(
        **{**given, "rule": method.pooling},
        seed=keys.seed,
        client_options=ClientOptions(
            clients=keys.clients,
            min_clients=keys.min_clients,
            round_retries=keys.round_retries,
            node_timeout=keys.node_timeout,
            max_examples=keys.max_examples,
            configuration=configuration,
            num_classes=num_classes,
            partition=partition,
        ),
        run=replace(
            run, predictive=method.predictive, closing=method.closing, sums_noise=method.sums_noise
        ),
    )
