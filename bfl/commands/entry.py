"""The entry points: a command can be interrupted before all that it needs has been imported.

It ends at once: to take TensorFlow's modules apart would take seconds.
"""

from __future__ import annotations

import atexit
import importlib
import os
import sys
import threading
import time
from contextlib import ExitStack

from psutil import Process

from bfl.commands.interruption import Interruption
from bfl.printing import doing, print_anywhere, shown

COMPUTE = ("run", "close", "check", "predict", "evaluate", "federation run", "federation check")
"""Commands that show what they are doing from the first second."""


def bfl() -> int:
    """Run the command ``bfl`` and return its exit status."""
    given = {" ".join(sys.argv[1:2]), " ".join(sys.argv[1:3])}
    return _run("bfl.commands.main", computes=not given.isdisjoint(COMPUTE))


def flower_simulation() -> int:
    """Run the command ``flower-simulation`` and return its exit status."""
    return _run("bfl.commands.flower_simulation", computes=True)


def _run(module: str, *, computes: bool) -> int:
    print_anywhere()
    helps = bool({"-h", "--help"} & {*sys.argv})
    # What a study is doing is in the lines of its runs.
    if (computes or sys.argv[1:2] == ["study"]) and not helps and sys.stderr.isatty():
        print("bfl is starting", file=sys.stderr, flush=True)
    with ExitStack() as shown_inside:
        if computes and not helps:
            doing("Python modules are imported")
            age = time.time() - Process().create_time()
            shown_inside.enter_context(shown(time.monotonic() - age))
        with Interruption() as interruption:
            try:
                main = importlib.import_module(module).main
            except KeyboardInterrupt as error:
                return interruption.over(error)
        status = int(main())
    if "tensorflow" in sys.modules:
        if status < 128:  # an interrupted command waits for nobody
            # Python's own end, which is private: it wakes the pools' idle threads and then waits
            # for all that are no daemons; to join them alone would wait for idle ones for ever.
            threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status
