"""The posterior that a run begins with, where it is another run's."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path

from bfl.errors import ConfigurationError, DataError
from bfl.experiments.results.run_folder import POSTERIOR, RunFolder
from bfl.posteriors import Manifest, Posterior
from bfl.posteriors.manifest import Parameter


def given_posterior(given: str, manifest: Manifest | None = None) -> Posterior:
    """Return the posterior that the key ``initial-posterior`` names.

    Args:
        given: A run's folder, or a file of a posterior in one.
        manifest: The parameters of the run's network; None: they are not known yet.

    Raises:
        ConfigurationError: It cannot be read, or is of another network.
    """
    path = Path(given)
    folder, file = (path, POSTERIOR) if path.is_dir() else (path.parent, path.name)
    try:
        posterior, theirs = RunFolder(folder).posterior(file)
    except DataError as error:
        raise ConfigurationError(
            f"initial-posterior is '{given}'; allowed: a finished run's folder, or its "
            f"{POSTERIOR}: {error}"
        ) from error
    for ours, other in zip_longest(manifest or theirs, theirs):
        if _said(ours) != _said(other):
            raise ConfigurationError(
                f"initial-posterior is '{given}', of another network: where this run's has "
                f"{_said(ours)}, it has {_said(other)}; allowed: a posterior of a run with the "
                "same model, inference, images and classes"
            )
    return posterior


def _said(parameter: Parameter | None) -> str:
    if parameter is None:
        return "no more parameters"
    form = "a Gaussian" if parameter.gaussian else "a point"
    return f"'{parameter.name}' {parameter.shape} as {form}"
