"""The long-lived process of a client: one for all tasks of a bundle, and another when it dies."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from bfl.engine.flower import warm
from bfl.engine.flower.warm import NodePort, Task, WarmWorker

STAND_IN = """
import os, sys, time
for line in sys.stdin:
    token, _, folder = line.strip().partition(" ")
    if token == "die":
        os._exit(3)
    if token == "hang":
        import signal
        signal.signal(signal.SIGTERM, lambda *_: open("asked", "w"))
        open("hangs", "w").close()
        time.sleep(60)
    if token == "slow":
        time.sleep(2)
    with open("played", "a") as played:
        played.write(f"{token} {os.getpid()} {sys.argv[2]} {sys.argv[4:]}\\n")
    print(0, flush=True)
"""

# The real file, with Flower's part exchanged: a task prints, and ends as Flower ends it.
REAL = """
import runpy, sys, types
runtime = types.ModuleType("runtime")
runtime.installed = []
runtime.install_from_fab = lambda content, skip_prompt: runtime.installed.append(content)
class Error:
    pass
runtime.Error = Error
runtime.pull_task_input = lambda client: ("message", "context", "run", None)
def run_clientapp(address, token, insecure, certificates):
    from flwr.supercore.exit.exit_handler import add_exit_handler
    add_exit_handler(lambda: print(f"handed in {token}", flush=True))
    runtime.install_from_fab(b"bundle", skip_prompt=True)
    print(f"{address} {token} {insecure} {certificates} {len(runtime.installed)}", flush=True)
    print(runtime.Error(code=2, reason="<class 'KeyError'>:<'Jane Doe'>").reason, flush=True)
    runtime.flwr_exit(code=0, event_type=None)
runtime.run_clientapp = run_clientapp
sys.modules["flwr.supernode.runtime.run_clientapp"] = runtime
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def worker(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[WarmWorker]:
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    monkeypatch.setattr(warm, "PROCESS", tmp_path / "stand_in.py")
    port = NodePort("address", tmp_path / "ca.crt")
    of_operator = WarmWorker(port, os.environ, tmp_path, said.append, 60.0, ["approved"])
    with closing(of_operator) as worker:
        yield worker


def played(folder: Path) -> list[list[str]]:
    path = folder / "played"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def nothing() -> None:
    pass


@pytest.mark.parametrize(
    ("between", "bundle", "processes", "messages"),
    [("", "bundle", 1, 0), ("", "other", 2, 0), ("die", "bundle", 2, 1)],
)
def test_one_process_plays_all_tasks_of_a_bundle_as_long_as_it_lives(
    between: str,
    bundle: str,
    processes: int,
    messages: int,
    worker: WarmWorker,
    tmp_path: Path,
    said: list[str],
) -> None:
    worker.play(Task("a", "bundle"), nothing)
    first = int(played(tmp_path)[0][1])
    if between == "die":
        worker.play(Task("die", "bundle"), nothing)
    worker.play(Task("b", bundle), nothing)
    tokens, pids, addresses, bundles = zip(*played(tmp_path), strict=True)
    assert tokens == ("a", "b")
    assert set(addresses) == {"address"}
    assert set(bundles) == {"['approved']"}
    assert len(set(pids)) == processes
    assert lives(first) == (processes == 1)
    assert len(said) == messages


def test_it_ends_with_its_supernode(worker: WarmWorker, tmp_path: Path) -> None:
    """What looks after the SuperNode raises, also in the middle of a task."""
    worker.play(Task("a", "bundle"), nothing)

    def look() -> None:
        if (tmp_path / "hangs").exists():
            raise RuntimeError("the SuperNode has ended")

    with pytest.raises(RuntimeError):
        worker.play(Task("hang", "bundle"), look)
    assert not lives(int(played(tmp_path)[0][1]))


def test_a_task_that_takes_too_long_is_ended(
    worker: WarmWorker, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker is killed, and not asked: it would hand in an end without an answer."""
    worker.play(Task("a", "bundle"), nothing)
    with monkeypatch.context() as shorter:
        shorter.setattr(worker, "timeout", 1.0)
        worker.play(Task("hang", "bundle"), nothing)
    assert ["task-timeout" in message for message in said] == [True]
    assert (tmp_path / "hangs").exists()
    assert not (tmp_path / "asked").exists()
    worker.play(Task("b", "bundle"), nothing)
    (_, first, *_), (token, second, *_) = played(tmp_path)
    assert token == "b"
    assert not lives(int(first))
    assert first != second


class NextTasks:
    """A SuperNode's tasks: one that comes at once, and notes of those that were closed."""

    def __init__(self, *tasks: Task) -> None:
        self.left = list(tasks)
        self.closed: list[str] = []

    def next(self) -> Task | None:
        return self.left.pop(0) if self.left else None

    def close(self, task: Task) -> None:
        self.closed.append(task.token)


def test_a_task_that_its_supernode_has_given_up_makes_room(
    worker: WarmWorker, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker would wait for ever for a message whose rest went with the server."""
    monkeypatch.setattr(warm, "GIVEN_UP_PATIENCE", 1.0)
    following = Task("b", "bundle")
    tasks: Any = NextTasks(following)
    worker.play(Task("a", "bundle"), nothing)
    assert worker.play(Task("hang", "bundle"), nothing, tasks) == following
    assert tasks.closed == ["hang"]
    assert ["given up" in message for message in said] == [True]
    assert worker.play(following, nothing, tasks) is None
    assert tasks.closed == ["hang"]
    assert [token for token, *_ in played(tmp_path)] == ["a", "b"]


def test_a_worker_that_is_about_to_end_its_task_stays_warm(
    worker: WarmWorker, tmp_path: Path, said: list[str]
) -> None:
    """The SuperNode has its reply, and so the next message, before the task is over."""
    following = Task("b", "bundle")
    tasks: Any = NextTasks(following)
    assert worker.play(Task("slow", "bundle"), nothing, tasks) == following
    worker.play(following, nothing, tasks)
    (_, first, *_), (_, second, *_) = played(tmp_path)
    assert first == second
    assert not said
    assert not tasks.closed


def test_flowers_end_of_a_task_is_not_the_workers(tmp_path: Path) -> None:
    """Each task's output is handed in, what it prints does not count, and bundles stay in place.

    Of an exception that the app has not caught, its kind alone is sent.
    """
    (tmp_path / "ca.crt").write_bytes(b"ca")
    done = subprocess.run(
        [sys.executable, "-P", "-c", REAL, str(warm.PROCESS), "worker", "address", "ca.crt"],
        input="first\nsecond\n",
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=300,
        check=True,
    )
    assert done.stdout == "0\n0\n"
    error = "<class 'KeyError'> (its message is in the client's own log)"
    assert done.stderr.splitlines() == [
        *("address first False b'ca' 1", error, "handed in first"),
        *("address second False b'ca' 1", error, "handed in second"),
    ]


# As Flower plays a task: its bundle is pulled, installed, and loaded by its hash.
WITH_BUNDLE = """
import os, runpy, sys, types
from flwr.supercore.fab import Fab
runtime = types.ModuleType("runtime")
runtime.Error = None
def install(content, skip_prompt):
    print(f"installed {content}", file=sys.stderr, flush=True)
runtime.install_from_fab = install
content = os.environ["BUNDLE"].encode()
runtime.pull_task_input = lambda client: (0, 0, 0, Fab("another", content, {}))
def run_clientapp(address, token, insecure, certificates):
    *_, fab = runtime.pull_task_input("client")
    try:
        runtime.install_from_fab(fab.content, skip_prompt=True)
        print(f"loaded {fab.hash_str}", flush=True)
    except Exception as error:
        reason = str(type(error)) + ":<'" + str(error) + "'>"
        print(runtime.Error(2, reason).reason, flush=True)
    runtime.flwr_exit(0)
runtime.run_clientapp = run_clientapp
sys.modules["flwr.supernode.runtime.run_clientapp"] = runtime
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


def played_with(folder: Path, bundle: str, *approved: str) -> list[str]:
    """Return what the worker does with a bundle of which the server says a hash that is not its."""
    (folder / "ca.crt").write_bytes(b"ca")
    (folder / "apps" / "bfl.bfl.1.another").mkdir(parents=True, exist_ok=True)
    worker = (str(warm.PROCESS), "worker", "address", "ca.crt")
    done = subprocess.run(
        [sys.executable, "-P", "-c", WITH_BUNDLE, *worker, *approved],
        input="token\n",
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "FLWR_HOME": str(folder), "BUNDLE": bundle},
        timeout=300,
        check=True,
    )
    assert done.stdout == "0\n"
    return done.stderr.splitlines()


def test_a_worker_runs_the_bundles_alone_that_its_operator_has_approved(tmp_path: Path) -> None:
    """By the hash of the bytes that it is given, whatever the server says; and none of before."""
    approved, other = (sha256(name).hexdigest() for name in (b"approved", b"other"))
    taken = ["installed b'approved'", f"loaded {approved}"]
    assert played_with(tmp_path, "approved") == taken
    assert (tmp_path / "apps" / "bfl.bfl.1.another").exists()
    assert played_with(tmp_path, "approved", other, approved) == taken
    assert not (tmp_path / "apps").exists()
    [refused] = played_with(tmp_path, "other", approved)
    assert other in refused
    assert "bundles in node.toml" in refused


def test_the_worker_imports_nothing_of_ours(tmp_path: Path) -> None:
    """A task's bundle brings bfl; what is there first would be played in its place."""
    code = "import runpy, sys; runpy.run_path(sys.argv[1]); print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, str(warm.PROCESS)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    modules = {name.partition(".")[0] for name in done.stdout.split()}
    assert "flwr" in modules
    assert not modules & {"bfl", "clients", "strategies", "tensorflow"}
