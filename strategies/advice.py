"""Advice for people whose run ends early."""

from __future__ import annotations

from bfl.experiments.results.run_folder import CONFIG, RunFolder


def how_to_go_on(folder: RunFolder) -> str:
    """Return how to go on from the last round that is over."""
    path = folder.path.resolve()
    named = str(folder.config().get("plugins", "")) if folder.holds(CONFIG) else ""
    own = f" --run-config 'plugins=\"{named}\"'" if named else ""
    return (
        f"all finished rounds are saved in {path}; go on from there with --resume {path}{own}, "
        f'or with name="{path.name}" resume=true in the run configuration'
    )


def how_to_begin_again(folder: RunFolder) -> str:
    """Return how to make a run again that cannot be gone on with, as what it kept is lost."""
    path = folder.path.resolve()
    return (
        "going on does not bring back what is lost; begin the run again: under another name, with "
        f"--run-config {path / CONFIG} --name NAME, or, when {path} has been removed, by the "
        "command that began it"
    )
