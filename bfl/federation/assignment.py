"""Assignment to clients by number, in the order of partition ids: ``mlp:2,lenet5:2,cnn2:6``."""

from __future__ import annotations

from collections.abc import Sequence

from bfl.errors import ConfigurationError


def assigned(entries: Sequence[tuple[str, int | None]], clients: int, key: str) -> tuple[int, ...]:
    """Return which entry each client has, counted from 0.

    Args:
        entries: At least one word, each with its number of clients; None, which only the last one
            may have: all that are left.
        clients: The number of clients.
        key: What says them, for the message.

    Raises:
        ConfigurationError: The numbers are not those of the clients.
    """
    named = sum(count or 0 for _, count in entries)
    open_ended = entries[-1][1] is None
    if named > clients or (named < clients and not open_ended):
        said = ",".join(f"{word}:{count}" if count else word for word, count in entries)
        raise ConfigurationError(
            f"{key} is '{said}', for {named} clients, and there are {clients}; allowed: numbers "
            f"that sum to {clients}, or a last one without a number, for all that are left"
        )
    numbers = [clients - named if count is None else count for _, count in entries]
    return tuple(index for index, number in enumerate(numbers) for _ in range(number))
