"""Ledger of begun rounds, written before anybody is asked: a crash forgets no release."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bfl.errors import DataError
from bfl.files import write_atomically
from bfl.texts import read_text


class Ledger:
    """The rounds that a run has begun, in their order.

    Where noise is keyed by the seed, a round that is made again has the noise that it had and is no
    other release: it counts once, and no file is kept. Where noise is drawn anew it counts again.

    Args:
        path: The file, of one line a round; None where noise is keyed by the seed.
        finished: The rounds that are over, which count whatever the file says.

    Attributes:
        begun: The rounds begun so far; one that was made again stands here again.
    """

    def __init__(self, path: Path | None, finished: Iterable[int] = ()) -> None:
        self._path = path
        self.begun: list[int] = []
        if path is not None and path.is_file():
            try:
                self.begun = [int(line) for line in read_text(path).split()]
            except ValueError as error:
                raise DataError(f"{path} is corrupt: {error}") from error
        self.begun += [number for number in finished if number not in self.begun]

    def begin(self, server_round: int) -> bool:
        """Note that a round begins, so that it outlives this process; return whether it counts.

        Raises:
            OSError: It cannot be written.
        """
        if self._path is None and server_round in self.begun:
            return False
        self.begun.append(server_round)
        if self._path is not None:
            text = "".join(f"{number}\n" for number in self.begun)
            write_atomically(self._path, text.encode("ascii"))
        return True
