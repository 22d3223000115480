"""Environment of a run: versions, processor, commit, start and end."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

import bfl

PACKAGES = ("flwr", "tensorflow", "tensorflow-probability", "tf-keras", "numpy", "scipy", "ray")

VECTORS = re.compile("avx|amx|fma|f16c|sse4|asimd|neon|sve|bf16|i8mm")
"""Prefixes of the kernel's names of vector instructions."""

STARTED, ENDED = "started", "ended"
"""Keys of the start and the end in a run's environment; with other rounds it ends anew."""


def time_now() -> str:
    """Return the time in UTC to the second, in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def describe_times(environments: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the start of the first of some runs and the time until the last ended, if known."""
    known = [e for e in environments if {STARTED, ENDED} <= e.keys()]
    try:
        first = min(datetime.fromisoformat(e[STARTED]) for e in known)
        last = max(datetime.fromisoformat(e[ENDED]) for e in known)
        return [f"started {first:%Y-%m-%d %H:%M:%S} UTC, ended {last - first} later"]
    except (TypeError, ValueError):  # none, or one that is no time
        return []


def package_version(package: str) -> str | None:
    """Return the version of an installed distribution without importing it, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> dict[str, str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    pairs = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    kernel = {name.strip(): value.strip() for name, _, value in pairs}
    flags = (kernel.get("flags") or kernel.get("Features") or "").split()
    # Variables that restrict the instructions of TensorFlow's oneDNN.
    variables = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "TF_ENABLE_ONEDNN_OPTS")
    limits = [f"{name}={os.environ[name]}" for name in variables if name in os.environ]
    # The kernel's names of a processor's vendor, family and model, for x86 and ARM.
    family = ("vendor_id", "cpu family", "model", "stepping", "CPU implementer", "CPU part")
    return {
        "processor": kernel.get("model name") or platform.processor() or platform.machine(),
        "processor-family": ", ".join(f"{key} {kernel[key]}" for key in family if key in kernel),
        "vector-instructions": " ".join([*sorted(filter(VECTORS.match, flags)), *limits]),
    }


def _git(folder: Path, *arguments: str) -> str | None:
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
    """Return the commit of a source tree, and whether tracked files differ; None for no checkout.

    An installed copy may lie in the checkout of another project.
    """
    top = _git(source, "rev-parse", "--show-toplevel")
    own = top is not None and Path(top).resolve() == source.resolve()
    commit = _git(source, "rev-parse", "HEAD") if own else None
    changes = _git(source, "status", "--porcelain", "--untracked-files=no") if commit else None
    return {"git-commit": commit, "git-changed": None if changes is None else bool(changes)}


def available_cpus() -> int:
    """Return how many CPUs the operating system gives this process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def describe_environment() -> dict[str, Any]:
    """Return versions, machine and commit for the reproduction of a run, for JSON.

    No package is imported: the versions are those of the installed distributions.
    """
    return {
        "bfl": bfl.__version__,
        "python": platform.python_version(),
        **{package: package_version(package) for package in PACKAGES},
        "platform": platform.platform(),
        **_processor(),
        "processors": available_cpus(),
        "memory-bytes": int(psutil.virtual_memory().total),
        **describe_commit(Path(bfl.__file__).resolve().parent.parent),
    }
