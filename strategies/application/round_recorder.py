"""Record each finished round: its numbers, its checkpoint, and what a person sees."""

from __future__ import annotations

from collections.abc import Mapping

from bfl.engine.resources import resident_memory
from bfl.engine.run import OnRound
from bfl.errors import RunError
from bfl.experiments.results.best import BestPosterior
from bfl.experiments.results.collapse import CollapseWatch
from bfl.experiments.results.progress import ProgressReport
from bfl.experiments.results.run_folder import PER_CLIENT, RunFolder
from bfl.experiments.results.summary import describe_posterior, deviations_by_layer
from bfl.experiments.run.resume import Checkpoint, Checkpoints
from bfl.experiments.tracking import LiveLog
from bfl.posteriors import Manifest
from strategies.course import Round
from strategies.privacy import PrivacyAccount


class RoundRecorder:
    """Writes and shows each round.

    Args:
        samples: How many Monte Carlo samples the rounds are evaluated with.
        best: Keeps the best posterior, where the server has images of its own.
        log: Where rounds are logged besides.
        privacy: Reckons the run's ε, where it has noise.
        hidden: What records say in place of numbers that nobody knows, or shall know; of single
            clients they say nothing in their place.
        manifest: The parameters of the network, where the server knows them.
        on_round: What the user calls with each round's number, metrics and posterior.
    """

    def __init__(
        self,
        folder: RunFolder,
        progress: ProgressReport,
        samples: int = 1,
        *,
        best: BestPosterior | None = None,
        log: LiveLog | None = None,
        privacy: PrivacyAccount | None = None,
        hidden: Mapping[str, str] | None = None,
        manifest: Manifest | None = None,
        on_round: OnRound = lambda *_: None,
    ) -> None:
        self.folder = folder
        self.progress = progress
        self.watch = CollapseWatch(folder, progress.say)
        self.samples = samples
        self.best = best
        self.log = log
        self.privacy = privacy
        self.hidden = hidden or {}
        self.manifest = manifest
        self.on_round = on_round
        self.checkpoints = Checkpoints(folder)

    def record(self, finished: Round) -> bool:
        """Write and show a round; return whether it was the last one, whatever ``rounds`` says.

        Raises:
            RunError: The user's ``on_round`` raised an error; the round is saved.
        """
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

    def begin(self, server_round: int) -> bool:
        """Account a round before it begins; return whether the privacy budget lets it.

        Raises:
            OSError: It cannot be written down.
        """
        if self.privacy is None or self.privacy.begin(server_round):
            return True
        if told := self.privacy.told(server_round):
            self.progress.say(told)
            line = f"round {server_round - 1}: {told}"
            if line not in self.folder.warnings():
                self.folder.append_warning(line)
        return False
