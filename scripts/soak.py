"""Kill a run at random moments, resume it each time, and compare its end; see soak.sh."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bfl.experiments.results.run_folder import RunFolder

ROOT = Path(__file__).resolve().parent.parent
CONFIG = (
    'model="mlp" local-epochs=1 evaluate-every=20 mc-samples=2 closing="none" '
    'evaluate-mc-samples=1 strategy="ppa" optimizer-state="keep" fraction-train=0.7 min-clients=4'
)
CLIENTS = 4
LAST_ROUNDS = 3
"""The rounds at the end in which nothing is killed: the run might end, or its actors, before."""
POLL_SECONDS = 0.05
ACTORS_END = 5.0
"""Seconds at most from an actor's end to the command's."""
MOST_SECONDS = 600.0
"""The longest that a run may take to come to a round; one that takes longer hangs."""


def command(folder: Path, backend: str, rounds: int) -> list[str]:
    """Return the command that begins or resumes the run in a folder."""
    call = "import sys; from bfl.commands.flower_simulation import main; sys.exit(main())"
    where = f'output-dir="{folder.parent}" name="{folder.name}"'
    options = ["--app", str(ROOT), "--backend", backend, "--num-supernodes", str(CLIENTS)]
    return [
        sys.executable,
        "-c",
        call,
        *options,
        "--resume",
        "--run-config",
        f"{CONFIG} rounds={rounds} {where}",
    ]


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, directly or not (Linux)."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue  # the thread has just ended
        for child in children:
            found += [int(child), *descendants(int(child))]
    return found


def actors(pid: int) -> list[int]:
    """Return the Ray actors among a process's descendants."""
    named = {}
    for child in descendants(pid):
        try:
            named[child] = Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:
            continue  # it has just ended
    return [child for child, name in named.items() if name.startswith(b"ray::ClientAppActor")]


def rounds_done(folder: Path) -> int:
    """Return how many rounds a run has recorded; none where there is no run yet."""
    return len(RunFolder(folder).rounds()) if folder.exists() else 0


def await_moment(process: subprocess.Popen[bytes], folder: Path, done: int, victim: str) -> bool:
    """Wait until a run has done that many rounds and its victim lives; False if it ends before."""
    latest = time.monotonic() + MOST_SECONDS
    while process.poll() is None:
        if time.monotonic() > latest:
            process.kill()
            sys.exit(f"the run has not come to round {done + 1} within {MOST_SECONDS:.0f} s")
        if rounds_done(folder) >= done and (victim != "actor" or actors(process.pid)):
            return True
        time.sleep(POLL_SECONDS)
    return False


def await_next_round(
    process: subprocess.Popen[bytes], folder: Path, done: int, pause: float
) -> None:
    """Wait so many seconds, or until one more round is done: the run must not end before."""
    ends = time.monotonic() + pause
    while time.monotonic() < ends and process.poll() is None and rounds_done(folder) <= done:
        time.sleep(POLL_SECONDS)


def live(begin: list[str], folder: Path, done: int, pause: float, victim: str, log: Path) -> str:
    """Let a run come to a round and a moment in it, and kill it or an actor; return what was."""
    with log.open("ab") as out:
        process = subprocess.Popen(begin, stdout=out, stderr=out, start_new_session=True)
    if not await_moment(process, folder, done, victim):
        return ""
    await_next_round(process, folder, done, pause)
    if process.poll() is not None:
        return ""
    living = actors(process.pid) if victim == "actor" else []
    if living:
        os.kill(random.choice(living), signal.SIGKILL)
        # And then the command, so that the number of kills is what was asked for.
        await_next_round(process, folder, rounds_done(folder), ACTORS_END)
    children = descendants(process.pid)
    process.kill()
    process.wait()
    for child in children:  # Ray's processes end by themselves, but later
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return "actor" if living else "command"


def history(folder: RunFolder) -> list[dict[str, Any]]:
    """Return the rounds without what clock, memory and failures have measured."""

    def lasting(entry: dict[str, Any]) -> dict[str, Any]:
        measured = ("seconds", "memory", "failures")
        return {k: v for k, v in entry.items() if not any(word in k for word in measured)}

    return [
        {**lasting(entry), "per-client": [lasting(client) for client in entry["per-client"]]}
        for entry in folder.rounds()
    ]


def main() -> int:
    """Return 0 if the disturbed run ended as the other one."""
    kills, backend, rounds = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    if kills > rounds - LAST_ROUNDS:
        sys.exit(
            f"{kills} kills need {kills + LAST_ROUNDS} rounds or more, and {rounds} are asked for"
        )
    random.seed(0)
    with tempfile.TemporaryDirectory() as scratch:
        whole, disturbed = Path(scratch) / "whole", Path(scratch) / "disturbed"
        log = Path(scratch) / "log"
        print("a run that nobody disturbs", flush=True)
        begun = time.monotonic()
        subprocess.run(command(whole, backend, rounds), check=True, stdout=subprocess.DEVNULL)
        took = time.monotonic() - begun
        # By rounds and not by the clock: a faster machine must not end before all are killed.
        later = sorted(random.sample(range(1, rounds - LAST_ROUNDS), kills - 1))
        for kill, done in enumerate([0, *later], start=1):
            in_rounds = sum(entry["seconds"] for entry in RunFolder(whole).rounds())
            longest = in_rounds / rounds if done else took - in_rounds
            pause = random.uniform(0.2, 1.0) * longest
            victim = "actor" if backend == "ray" and kill % 2 == 0 else "command"
            begin = command(disturbed, backend, rounds)
            killed = live(begin, disturbed, done, pause, victim, log)
            what, ended = killed or "nothing", rounds_done(disturbed)
            print(f"kill {kill}: {what} from round {done + 1} on; {ended} rounds done", flush=True)
            if not killed:
                print("the run had ended before it could be killed; more rounds are needed")
                break
        subprocess.run(command(disturbed, backend, rounds), check=True, stdout=subprocess.DEVNULL)
        first, second = RunFolder(whole), RunFolder(disturbed)
        same = (
            history(first) == history(second)
            and first.posterior()[0].digest() == second.posterior()[0].digest()
            and first.metrics() == second.metrics()
        )
        print(f"undisturbed {first.posterior()[0].digest()}")
        print(f"disturbed   {second.posterior()[0].digest()}")
        print("the same" if same else "NOT THE SAME")
        if not same:
            print(log.read_text(errors="replace")[-3000:])
        return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
