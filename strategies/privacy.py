"""Differential privacy on the server: ε of the rounds so far, the budget, and the pool's noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bfl import randomness
from bfl.configuration import Configuration
from bfl.errors import ConfigurationError
from bfl.federation.outgoing import Outgoing, is_private, noised_pool
from bfl.federation.outgoing.noise import Noise
from bfl.federation.parts import Counts
from bfl.federation.privacy.accountant import check_accountant
from bfl.federation.privacy.difference import difference
from bfl.federation.privacy.ledger import Ledger
from bfl.federation.privacy.normals import Normals, SystemNormals
from bfl.posteriors import Manifest, Posterior

LEDGER = "rounds-begun"
"""The file in a run's folder with the rounds begun, where noise is drawn anew."""


class PrivacyAccount:
    """Reckons ε of the client that has been asked most often, and says when the budget is spent.

    Who is asked when follows from the seed, which clients know as well as the server: no release
    is amplified by sampling, and a round counts for those that it asks alone. A client that is
    asked counts as one that has answered.

    Args:
        noise: The noise of each release.
        rounds: The number of rounds of the run.
        asked: Gives the partition ids that a round asks.
        ledger: The rounds begun so far.
    """

    def __init__(
        self, noise: Noise, rounds: int, asked: Callable[[int], Sequence[int]], ledger: Ledger
    ) -> None:
        self.noise = noise
        self.rounds = rounds
        self._asked = asked
        self._ledger = ledger
        self._releases = Counter(i for number in ledger.begun for i in asked(number))

    def begin(self, server_round: int) -> bool:
        """Count a round, before anybody is asked; return whether it is within the budget.

        One that is not, or that is beyond the last one, is not counted.

        Raises:
            OSError: It cannot be written down.
        """
        if server_round > self.rounds or self.exhausted(server_round):
            return False
        if self._ledger.begin(server_round):
            self._releases.update(self._asked(server_round))
        return True

    def epsilon(self) -> float:
        """Return ε of the rounds begun."""
        return self.noise.epsilon(max(self._releases.values(), default=0))

    def epsilon_after(self, server_round: int) -> float:
        """Return what ε will be when one more round has been begun."""
        releases = self._releases + Counter(self._asked(server_round))
        return self.noise.epsilon(max(releases.values()))

    def exhausted(self, server_round: int) -> bool:
        """Return whether a round is one of the run's, and leads beyond the budget."""
        beyond = self.epsilon_after(server_round) > self.noise.epsilon_budget
        return server_round <= self.rounds and beyond

    def told(self, server_round: int) -> str:
        """Return what a person reads when the budget ends a run before a round; empty: it does not.

        The run is over then as if it had had no more rounds, and is judged as any other.
        """
        if not self.exhausted(server_round):
            return ""
        return (
            f"stopped before round {server_round}: it would lead to ε = "
            f"{self.epsilon_after(server_round):.4g}, and epsilon-budget is "
            f"{self.noise.epsilon_budget:g}; so far ε = {self.epsilon():.4g} at δ = "
            f"{self.noise.privacy_delta:g}"
        )


@dataclass(frozen=True)
class PoolNoise:
    """What is done to the clients' pool by the parts of the chain that updates have passed.

    Attributes:
        chain: The parts.
        seed: The run's seed.
        anew: Whether noise is from the system's randomness, and not from the seed.
    """

    chain: tuple[Outgoing, ...]
    seed: int
    anew: bool

    def problem(self, update: Posterior, previous: Posterior) -> str | None:
        """Return what is wrong with a client's update where the noise is the server's.

        It hides differences of a bounded length: a longer one would drown the noise of all, in the
        rounding of the pool at the least.

        Args:
            update: What the client has sent.
            previous: What it was sent.
        """
        noises = [part for part in self.chain if isinstance(part, Noise)]
        if not any(part.active and part.by_server for part in noises):
            return None
        there = difference(previous, update)
        broken = [part.name for part in self.chain if part.active and not part.holds(there)]
        if not broken:
            return None
        length = float(np.linalg.norm(there))
        return f"a difference of length {length:.4g} from what was sent, and outgoing has {broken}"

    def __call__(self, pooled: Posterior, previous: Posterior, counts: Counts) -> Posterior:
        """Return what becomes of a round's pool."""
        labels = ("pool-noise", counts.server_round)
        seeded = randomness.generator(self.seed, *labels)
        normals: Normals = SystemNormals() if self.anew else seeded
        return noised_pool(self.chain, pooled, previous, counts, normals)


def pool_noise(configuration: Configuration, *, anew: bool) -> PoolNoise | None:
    """Return what is done to the pools of a run; None for nothing."""
    if not is_private(configuration.outgoing):
        return None
    return PoolNoise(configuration.outgoing, configuration.keys.seed, anew)


def active_noise(configuration: Configuration) -> Noise | None:
    """Return the noise of a configuration's chain; None if there is none."""
    found = [part for part in configuration.outgoing if isinstance(part, Noise) and part.active]
    return found[0] if found else None


def check_privacy(configuration: Configuration) -> None:
    """Raise if ε cannot be reckoned, or not even the first round is within the budget.

    Raises:
        ConfigurationError: Naming the key and what would do.
    """
    noise = active_noise(configuration)
    if noise is None:
        return
    check_accountant()
    one, rounds = noise.epsilon(1), configuration.keys.rounds
    if one > noise.epsilon_budget:
        needed = noise.multiplier_for(noise.epsilon_budget, 1)
        raise ConfigurationError(
            f"epsilon-budget is {noise.epsilon_budget:g}, and one round with noise-multiplier "
            f"{noise.noise_multiplier:g} has ε = {one:.4g} at δ = {noise.privacy_delta:g}; "
            f"allowed: a noise-multiplier of {needed:.4g} for one round, of "
            f"{noise.multiplier_for(noise.epsilon_budget, rounds):.4g} for {rounds}"
        )


def check_no_moving_statistics(configuration: Configuration, manifest: Manifest) -> None:
    """Raise if clients would send statistics of their data beside what training moves.

    Raises:
        ConfigurationError: Naming the first one.
    """
    moving = [parameter.name for parameter in manifest.point if not parameter.trainable]
    if moving and is_private(configuration.outgoing):
        raise ConfigurationError(
            f"outgoing has 'noise', and the network of model '{configuration.words['model']}' has "
            f"{len(moving)} parameters that follow the data and not the gradient, the first "
            f"'{moving[0]}'; allowed: a model without moving statistics"
        )


def privacy_account(
    configuration: Configuration, clients: int, folder: Path, finished: int, *, anew: bool
) -> PrivacyAccount | None:
    """Return the account of a run, where it has noise.

    Args:
        configuration: The run's configuration.
        clients: The number of clients.
        folder: The run's folder.
        finished: The rounds that are over.
        anew: Whether noise is from the system's randomness.
    """
    noise = active_noise(configuration)
    if noise is None:
        return None
    seed, sampling = configuration.keys.seed, configuration.sampling
    ledger = Ledger(folder / LEDGER if anew else None, range(1, finished + 1))
    return PrivacyAccount(
        noise,
        configuration.keys.rounds,
        lambda number: sampling.sample(seed, number, clients),
        ledger,
    )
