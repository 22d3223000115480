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
from bfl.errors import RunError
from bfl.federation.outgoing import Outgoing, is_private, noised_pool
from bfl.federation.parts import Counts
from bfl.federation.privacy import Ledger, Mechanism, Normals, SystemNormals, difference
from bfl.files import write_atomically
from bfl.posteriors import Posterior
from bfl.texts import read_text

SUMS_LEDGER = "sums-begun"
"""The file in a run's folder with the rounds of noised sums begun for its closings."""

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
        if server_round > self.rounds or self.exhausted(server_round):
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

    def exhausted(self, server_round: int) -> list[Mechanism]:
        """Return the mechanisms whose budget a round would exceed, if it is one of the run's."""
        if server_round > self.rounds:
            return []
        return self._over_budget(self.epsilons(server_round))

    def _over_budget(self, epsilons: Mapping[str, float]) -> list[Mechanism]:
        return [each for each in self.mechanisms if epsilons[each.metric] > each.budget]

    def reason_to_stop(self, server_round: int) -> str:
        """Return for people which budget ends a run before a round; empty: none does.

        The run is over then as if it had had no more rounds, and is evaluated as any other.
        """
        for spent in self.exhausted(server_round)[:1]:
            following, so_far = self.epsilons(server_round), self.epsilons()
            return (
                f"stopped before round {server_round}: it would lead to ε = "
                f"{following[spent.metric]:.4g}, and {spent.budget_key} is {spent.budget:g}; so "
                f"far ε = {so_far[spent.metric]:.4g} at δ = {spent.delta:g}"
            )
        return ""

    def begin_sums(self, folder: Path, release: str, *, anew: bool) -> None:
        """Note that a round of a closing's noised sums begins, so that it outlives this process.

        The account is that of the run with this round's closing; RunError: a budget is exceeded.

        Args:
            release: A word for what is asked, as in ``count_sums_room``. With noise by the seed,
                the same has the same noise, and counts once.
            anew: Whether noise is from the system's randomness.
        """
        begun = read_begun_sums(folder)
        if release in begun and not anew:
            return
        epsilons = self.epsilons()
        for spent in self._over_budget(epsilons):
            raise RunError(
                f"no closing: {len(begun)} rounds of sums have been asked for in this run, and all "
                f"that this one may ask for would lead to ε = {epsilons[spent.metric]:.4g}; "
                f"{spent.budget_key} is {spent.budget:g}"
            )
        lines = "".join(f"{line}\n" for line in [*begun, release])
        write_atomically(folder / SUMS_LEDGER, lines.encode("ascii"))

    def _with_round(self, server_round: int) -> list[Counter[int]]:
        epochs = self._epochs(server_round)
        return [
            before + Counter({client: mechanism.releases(epochs[client]) for client in epochs})
            for mechanism, before in zip(self.mechanisms, self._releases, strict=True)
        ]


def privacy_account(
    configuration: Configuration,
    clients: int,
    folder: Path,
    finished: int,
    *,
    anew: bool,
    sums: int = 0,
) -> PrivacyAccount | None:
    """Return the account of a run, where it has noise.

    Args:
        anew: Whether noise is from the system's randomness.
        sums: For how many rounds of closings' sums ε has room.
    """
    noised = mechanisms(configuration, sums)
    if not noised:
        return None
    keys, sampling, workload = configuration.keys, configuration.sampling, configuration.workload

    def epochs(number: int) -> dict[int, int]:
        selected = sampling.sample(keys.seed, number, clients)
        local = keys.local_epochs
        return {i: workload.epochs(keys.seed, number, i, clients, local) for i in selected}

    ledger = Ledger(folder / LEDGER if anew else None, range(1, finished + 1))
    return PrivacyAccount(noised, keys.rounds, epochs, ledger)


def read_begun_sums(folder: Path) -> list[str]:
    """Return the words for the rounds of closings' sums that a run has begun."""
    path = folder / SUMS_LEDGER
    return read_text(path).splitlines() if path.is_file() else []


def count_sums_room(begun: Sequence[str]) -> int:
    """Return for how many rounds of sums ε has room: for all that each closing begun may take.

    A closing's sums decide when it ends. One that begins anew has its room once more, and a round
    that is made again counts once more.

    Args:
        begun: The words for the rounds begun; each ends with the round's number, a slash, and the
            most rounds of its closing.
    """
    most: dict[str, int] = {}
    numbers: dict[str, Counter[str]] = {}
    for closing, _, place in (line.rpartition(" ") for line in begun):
        number, _, rounds = place.partition("/")
        most[closing] = int(rounds or 1)
        numbers.setdefault(closing, Counter())[number] += 1
    room = 0
    for closing, counted in numbers.items():
        begins = max(counted["1"], 1)
        retries = sum(max(0, count - begins) for count in counted.values())
        room += begins * max(most[closing], len(counted)) + retries
    return room


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
        return noised_pool(self.chain, pooled, previous, counts, normals)


def pool_noise(configuration: Configuration, *, anew: bool) -> PoolNoise | None:
    """Return what is done to the pools of a run; None for nothing."""
    if not is_private(configuration.outgoing):
        return None
    return PoolNoise(configuration.outgoing, configuration.keys.seed, anew)
