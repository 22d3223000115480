"""Differential privacy on the server: ε of the rounds so far, the budget, and the pool's noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bfl import randomness
from bfl.configuration import Configuration
from bfl.configuration.configuration import mechanisms
from bfl.errors import ConfigurationError
from bfl.evaluation import precision_spread
from bfl.federation.client_metrics import NUM_EXAMPLES
from bfl.federation.outgoing import Outgoing, change_pool_by, is_private
from bfl.federation.parts import Counts
from bfl.federation.privacy import Ledger, Mechanism, Normals, SystemNormals, difference
from bfl.posteriors import Manifest, Posterior

LEDGER = "rounds-begun"
"""The file in a run's folder with the rounds begun, where noise is drawn anew."""


class PrivacyAccount:
    """Computes ε of the client that has released most, and says when a budget is spent.

    Which clients are selected follows from the seed, which clients know as well as the server: no
    release is amplified by sampling, and a round counts for its selected clients alone. A selected
    client counts as one that has replied.

    Args:
        mechanisms: The kinds of noised releases of a client; each has an ε of its own.
        epochs: Gives the numbers of epochs of a round's selected clients, by partition id.
    """

    def __init__(
        self,
        mechanisms: Sequence[Mechanism],
        rounds: int,
        epochs: Callable[[int], Mapping[int, int]],
        ledger: Ledger,
    ) -> None:
        self.mechanisms, self.rounds = mechanisms, rounds
        self._epochs, self._ledger = epochs, ledger
        self._releases: list[Counter[int]] = [Counter() for _ in mechanisms]
        for number in ledger.begun:
            self._releases = self._with_round(number)

    def begin(self, server_round: int) -> bool:
        """Count a round, before anybody is asked; return whether it is within the budgets.

        One that is not, or that is beyond the last one, is not counted.
        """
        if server_round > self.rounds or self.reason_to_stop(server_round):
            return False
        if self._ledger.begin(server_round):
            self._releases = self._with_round(server_round)
        return True

    def epsilons(self, server_round: int | None = None) -> dict[str, float]:
        """Return ε of the rounds begun, and of one more if it is given, by mechanisms' metrics."""
        releases = self._releases if server_round is None else self._with_round(server_round)
        return {
            mechanism.metric: mechanism.epsilon(max(counted.values(), default=0))
            for mechanism, counted in zip(self.mechanisms, releases, strict=True)
        }

    def reason_to_stop(self, server_round: int) -> str:
        """Return for people which budget ends a run before a round; empty: none does.

        The run is over then as if it had had no more rounds, and is evaluated as any other.
        """
        following = self.epsilons(server_round) if server_round <= self.rounds else {}
        for mechanism in self.mechanisms:
            if following.get(mechanism.metric, 0.0) > mechanism.budget:
                so_far = self.epsilons()[mechanism.metric]
                return (
                    f"stopped before round {server_round}: it would lead to ε = "
                    f"{following[mechanism.metric]:.4g}, and {mechanism.budget_key} is "
                    f"{mechanism.budget:g}; so far ε = {so_far:.4g} at δ = {mechanism.delta:g}"
                )
        return ""

    def _with_round(self, server_round: int) -> list[Counter[int]]:
        epochs = self._epochs(server_round)
        return [
            before + Counter({client: mechanism.releases(epochs[client]) for client in epochs})
            for mechanism, before in zip(self.mechanisms, self._releases, strict=True)
        ]


def privacy_account(
    configuration: Configuration, clients: int, folder: Path, finished: int, *, anew: bool
) -> PrivacyAccount | None:
    """Return the account of a run, where it has noise; ``anew``: from the system's randomness."""
    noised = mechanisms(configuration)
    if not noised:
        return None
    keys, sampling, workload = configuration.keys, configuration.sampling, configuration.workload

    def epochs(number: int) -> dict[int, int]:
        selected = sampling.sample(keys.seed, number, clients)
        local = keys.local_epochs
        return {i: workload.epochs(keys.seed, number, i, clients, local) for i in selected}

    ledger = Ledger(folder / LEDGER if anew else None, range(1, finished + 1))
    return PrivacyAccount(noised, keys.rounds, epochs, ledger)


@dataclass(frozen=True)
class PoolNoise:
    """Noise on the clients' pool, by the parts of the chain that updates have passed.

    Attributes:
        anew: Whether noise is from the system's randomness, and not from the seed.
    """

    chain: tuple[Outgoing, ...]
    seed: int
    anew: bool

    @property
    def draws(self) -> bool:
        """True if it draws random numbers: the noise is the server's."""
        return any(part.draws_on_pool for part in self.chain)

    def problem(self, update: Posterior, previous: Posterior) -> str | None:
        """Return what is wrong with a client's update where the noise is the server's.

        It hides differences of a bounded length: a longer one would drown the noise of all, in the
        rounding of the pool at the least.
        """
        if not self.draws:
            return None
        change = difference(previous, update)
        broken = [part.name for part in self.chain if part.active and not part.holds(change)]
        if not broken:
            return None
        length = float(np.linalg.norm(change))
        return f"a difference of length {length:.4g} from what was sent, and outgoing has {broken}"

    def __call__(self, pooled: Posterior, previous: Posterior, counts: Counts) -> Posterior:
        """Return what becomes of a round's pool."""
        seeded = randomness.generator(self.seed, "pool-noise", counts.server_round)
        normals: Normals = SystemNormals() if self.anew else seeded
        return change_pool_by(self.chain, pooled, previous, counts, normals)


def pool_noise(configuration: Configuration, *, anew: bool) -> PoolNoise | None:
    """Return what is done to the pools of a run; None for nothing."""
    if not is_private(configuration.outgoing):
        return None
    return PoolNoise(configuration.outgoing, configuration.keys.seed, anew)


def check_privacy(configuration: Configuration) -> None:
    """Refuse a run whose ε cannot be computed, or exceeds a budget in the first round."""
    keys = configuration.keys
    # The epochs of a round's clients are drawn where they differ; the account has each.
    epochs = max(1, round(configuration.workload.expected_epochs(keys.local_epochs)))
    for mechanism in mechanisms(configuration):
        mechanism.check_budget(epochs, keys.rounds)


def check_moving_statistics(configuration: Configuration, manifest: Manifest) -> None:
    """Refuse a private run whose clients would send statistics of their data."""
    moving = [parameter.name for parameter in manifest.point if not parameter.trainable]
    if moving and configuration.hides_measurements:
        words = configuration.words
        raise ConfigurationError(
            f"outgoing is '{words['outgoing']}' and example-privacy '{words['example-privacy']}', "
            f"with noise, and the network of model '{words['model']}' has {len(moving)} parameters "
            f"that follow the data and not the gradient, the first '{moving[0]}'; allowed: a model "
            "without moving statistics"
        )


def hide_numbers(configuration: Configuration) -> dict[str, str]:
    """Return what a round's record says in place of numbers that nobody knows, or shall know."""
    names = [NUM_EXAMPLES] if is_private(configuration.outgoing) else []
    if configuration.exchange.secure_sums:
        names += ["effective-clients", "largest-weight"]
        if configuration.pooling.by_precision:
            names += [precision_spread.SPREAD, precision_spread.DISTANCE]
    return dict.fromkeys(names, "hidden")
