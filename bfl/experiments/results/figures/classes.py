"""The names of a run's classes, for its figures."""

from __future__ import annotations

from bfl.errors import DataError
from bfl.experiments.results.run_folder import NETWORK, RunFolder


def class_names(folder: RunFolder) -> tuple[str, ...]:
    """Return the names of a run's classes; none for runs that have not written them down.

    Raises:
        DataError: The file is there but corrupt.
    """
    if not folder.holds(NETWORK):
        return ()
    content = folder.network()
    try:
        return tuple(str(name) for name in content["class-names"])
    except (KeyError, TypeError) as error:
        raise DataError(f"{folder.path / NETWORK} is corrupt: {error!r}") from error
