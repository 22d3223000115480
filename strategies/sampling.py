"""Which clients train in a round: a function of the seed and the round alone."""

from __future__ import annotations

from bfl import randomness


def sample_partitions(seed: int, server_round: int, num_clients: int, fraction: float) -> list[int]:
    """Return the sorted partition ids of the clients that train in a round.

    ⌈fraction · K⌋ of them, rounded to the nearest and at least 1, without replacement. Resuming
    needs no memory of earlier rounds, and Flower's random node ids play no part.

    Args:
        seed: The run's seed.
        server_round: The round, from 1.
        num_clients: K.
        fraction: The share of the clients that train.
    """
    count = min(num_clients, max(1, round(fraction * num_clients)))
    generator = randomness.generator(seed, "clients", server_round)
    return sorted(int(i) for i in generator.choice(num_clients, size=count, replace=False))
