"""On what a run was made: versions, machine, commit."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import bfl
from bfl.cpus import memory_bytes

PACKAGES = (
    "flwr",
    "tensorflow",
    "tensorflow-probability",
    "tf-keras",
    "numpy",
    "scipy",
    "ray",
)


def package_version(package: str) -> str | None:
    """Return the version of an installed distribution without importing it, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def processor_model() -> str:
    """Return the processor's name as the kernel gives it, else as Python does."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def processor_count() -> int:
    """Return the number of logical processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS and Windows
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _git(folder: Path, *arguments: str) -> str | None:
    """Return what a git command prints, or None when it fails or there is no git."""
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def describe_commit(source: Path) -> dict[str, Any]:
    """Return the git commit of a source tree and whether tracked files were changed since.

    Args:
        source: The top folder of the source tree.

    Returns:
        ``git-commit`` and ``git-changed``; both None unless ``source`` itself is a checkout: the
        commit of some other project whose folder happens to hold an installed copy says nothing.
    """
    nothing = {"git-commit": None, "git-changed": None}
    top = _git(source, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != source.resolve():
        return nothing
    commit = _git(source, "rev-parse", "HEAD")
    if commit is None:
        return nothing
    changes = _git(source, "status", "--porcelain", "--untracked-files=no")
    return {"git-commit": commit, "git-changed": None if changes is None else bool(changes)}


def describe_environment() -> dict[str, Any]:
    """Return what a reader needs in order to repeat a run: versions, machine and commit.

    Nothing is imported for it: the versions are those of the installed distributions.

    Returns:
        A dictionary for JSON: ``bfl``, ``python`` and the version (or None) of each package that
        the numbers depend on, ``platform``, ``processor``, ``processors`` (those this process may
        use), ``memory-bytes``, ``git-commit`` and ``git-changed``.
    """
    return {
        "bfl": bfl.__version__,
        "python": platform.python_version(),
        **{package: package_version(package) for package in PACKAGES},
        "platform": platform.platform(),
        "processor": processor_model(),
        "processors": processor_count(),
        "memory-bytes": memory_bytes(),
        **describe_commit(Path(bfl.__file__).resolve().parent.parent),
    }
