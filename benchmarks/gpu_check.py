"""Checks on a machine with a GPU: TensorFlow, steps, a run twice, a cell of Table 2; as JSON.

Each check runs in processes of its own, for what is left of nine minutes. One that fails or finds
no time says so in the result, and the others go on; the exit status is then 1.

    scripts/gpu_check.sh [--output FILE]    # --dry-run: small, on the CPU
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring import ROOT, write_images

import bfl
from bfl.errors import BflError
from bfl.experiments.results.environment import describe_environment
from bfl.experiments.results.run_folder import METRICS, RunFolder

SECONDS = 9 * 60
STOPPING = 30
"""Seconds that an interrupted run has to stop its processes."""
FAILURES = (BflError, OSError, RuntimeError, subprocess.TimeoutExpired, ValueError)
PRECISIONS = ("float32", "tf32", "bfloat16")
"""Precisions of matrix products: TF32 rounds the factors of float32 products to 10 bits."""


@dataclass(frozen=True)
class Size:
    """The size of the checks.

    Attributes:
        model: The network of the steps and of the cell.
        rounds: Rounds of the runs that are compared.
        examples: Training images of the cell if they are random.
        gpu: The fraction of a GPU that each actor gets.
        most: The rounds of the cell, of which it takes as many as fit; the paper has 400.
        clients: The clients of the runs and of the cell.
        values: Configuration of the runs besides.
    """

    model: str = "resnet20"
    runs: int = 3
    rounds: int = 3
    examples: int = 50_000
    gpu: float = 0.25
    precisions: tuple[str, ...] = PRECISIONS
    most: int = 400
    clients: int = 10
    values: str = ""


SMALL = "train-examples=160 test-examples=40 local-epochs=1 mc-samples=2 evaluate-mc-samples=1"
DRY = Size("mlp", 1, 1, 160, 0.0, ("float32",), 2, 2, SMALL)


def seen() -> dict[str, Any]:
    """Return the GPUs that TensorFlow sees, and what it was built for."""
    from bfl.keras import configure, tf

    configure(1)
    gpus = tf.config.list_physical_devices("GPU")
    build = tf.sysconfig.get_build_info()
    return {
        "gpus": [tf.config.experimental.get_device_details(gpu) for gpu in gpus],
        "memory-growth": [tf.config.experimental.get_memory_growth(gpu) for gpu in gpus],
        "cuda": build.get("cuda_version"),
        "cudnn": build.get("cudnn_version"),
    }


def step(model: str, inference: str, precision: str, jit: str, runs: int) -> dict[str, Any]:
    """Return the milliseconds of a training step of 32 images, and the GPU's peak memory."""
    from training_step import STEPS, trained

    from bfl.keras import has_gpu, tf

    tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")
    kept = "bfloat16" if precision == "bfloat16" else "float32"
    train = trained(kept, jit == "on", 1, model, inference)
    taken = []
    for _ in range(runs):
        started = time.perf_counter()
        train()
        taken.append((time.perf_counter() - started) * 1000 / STEPS)
    return {
        "milliseconds": sorted(taken)[len(taken) // 2],
        "peak-bytes": tf.config.experimental.get_memory_info("GPU:0")["peak"]
        if has_gpu()
        else None,
    }


def here(left: float, name: str, *arguments: object) -> dict[str, Any]:
    """Return what one of this file's functions gives in a process of its own."""
    command = [sys.executable, __file__, "--call", json.dumps([name, *arguments])]
    return dict(json.loads(_run(command, left).splitlines()[-1]))


def simulated(size: Size, left: float, scratch: Path, name: str, values: str) -> dict[str, Any]:
    """Return seconds, images a second and the digest of a run of the command.

    The cell has more rounds than fit. It is interrupted, and its result is of the rounds till then.
    """
    backend = {"client_resources": {"num_cpus": 1, "num_gpus": size.gpu}}
    command = [str(Path(sys.executable).with_name("flower-simulation")), "--app", str(ROOT)]
    command += ["--num-supernodes", str(size.clients), "--backend-config", json.dumps(backend)]
    if not size.gpu:  # Ray's start is most of a small run
        command += ["--backend", "serial"]
    command += ["--run-config", f'{values} closing="none" output-dir="{scratch}" name="{name}"']
    started = time.perf_counter()
    _run(command, left, interrupt=name == "cell")
    folder = RunFolder(scratch / name)
    rounds = folder.rounds()
    if not rounds:
        raise RuntimeError("no round ended in time")
    # The first round traces and compiles.
    later = rounds[1:] or rounds
    return {
        "seconds": time.perf_counter() - started,
        "rounds": len(rounds),
        "images-per-second": sum(entry["num-examples"] for entry in later)
        / sum(entry["seconds"] for entry in later),
        "posterior-sha256": rounds[-1]["posterior-sha256"],
        "metrics": folder.metrics() if folder.holds(METRICS) else None,
    }


def _run(command: list[str], left: float, *, interrupt: bool = False) -> str:
    stopping = STOPPING if interrupt else 0
    if left <= stopping:
        raise RuntimeError("no time is left")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            said, _ = process.communicate(timeout=left - stopping)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT if interrupt else signal.SIGKILL)
            try:
                process.communicate(timeout=STOPPING)
            finally:
                process.kill()
            if not interrupt:
                raise
            return ""
    if process.returncode:
        raise RuntimeError(said[-2000:])
    return said


def cell(size: Size, scratch: Path, data: Path | None) -> str:
    """Return the configuration of Table 2's weighted sum, IID (Fischer et al. 2024)."""
    runs = bfl.study(ROOT / "configs/fischer2024/full-size.toml").study.runs
    values = {**runs[0].values, "model": size.model, "rounds": size.most}
    values |= {"evaluate-every": 0, "mc-samples": 2, "figures": "none", "clients": size.clients}
    if data:
        values["data-dir"] = str(data)
    else:
        values["dataset"] = write_images(scratch, size.examples)
    return " ".join(f"{key}={json.dumps(value)}" for key, value in values.items())


def checks(size: Size, scratch: Path, data: Path | None) -> dict[str, Callable[[float], Any]]:
    """Return the checks by name, each a function of the seconds that are left."""
    found: dict[str, Callable[[float], Any]] = {"tensorflow": lambda left: here(left, "seen")}
    default = f'model="{size.model}" strategy="ws" rounds={size.rounds} figures="none"'
    default = f"{default} {size.values}"
    for turn in ("first", "second"):
        found[f"default-run-{turn}"] = lambda left, turn=turn: simulated(
            size, left, scratch, turn, default
        )
    for inference in ("deterministic", "flipout"):
        for precision in size.precisions if inference == "flipout" else ("float32",):
            for jit in ("off", "on") if size.gpu else ("off",):
                given = (size.model, inference, precision, jit, size.runs)
                found[f"step-{inference}-{precision}-jit-{jit}"] = lambda left, given=given: here(
                    left, "step", *given
                )
    found["table2-cell"] = lambda left: simulated(
        size, left, scratch, "cell", cell(size, scratch, data)
    )
    return found


def summary(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answers that several checks give together."""
    told: dict[str, Any] = {}
    digests = [results[f"default-run-{t}"].get("posterior-sha256") for t in ("first", "second")]
    if all(digests):
        told["same-bits"] = digests[0] == digests[1]
    steps = {
        name: result["milliseconds"] for name, result in results.items() if "milliseconds" in result
    }
    flipout, fedavg = (steps.get(f"step-{i}-float32-jit-off") for i in ("flipout", "deterministic"))
    if flipout and fedavg:
        told["flipout-over-fedavg"] = flipout / fedavg
    return told


def main() -> int:
    """Run all checks and write what they give; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dry-run", action="store_true", help="small checks on the CPU")
    parser.add_argument(
        "--data-dir", type=Path, help="the folder of cifar10.npz; else random images"
    )
    parser.add_argument("--output", type=Path, help="JSON file that gets the result")
    parser.add_argument("--call", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.call:
        name, *arguments = json.loads(given.call)
        print(json.dumps({"seen": seen, "step": step}[name](*arguments), default=str))
        return 0
    if given.dry_run:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    ends, results = time.monotonic() + SECONDS, dict[str, Any]()
    with tempfile.TemporaryDirectory() as scratch:
        size = DRY if given.dry_run else Size()
        for name, check in checks(size, Path(scratch), given.data_dir).items():
            try:
                results[name] = check(ends - time.monotonic())
            except FAILURES as error:
                results[name] = {"failed": str(error)}
            print(f"{name}: {json.dumps(results[name])[:200]}", flush=True)
    if not given.dry_run and not results["tensorflow"].get("gpus"):
        results["tensorflow"]["failed"] = "TensorFlow sees no GPU"
    report = {"environment": describe_environment(), "checks": results, **summary(results)}
    if given.output:
        given.output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    failed = [name for name, result in results.items() if "failed" in result]
    print(json.dumps({**summary(results), "failed": failed}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
