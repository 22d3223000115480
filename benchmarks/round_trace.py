"""Functions and files that one client's update runs through, from its task to the pooled posterior.

``python benchmarks/round_trace.py [KEY=VALUE …]`` runs two rounds in this process and traces the
second, on both sides: ``configure_train``, the ClientApp, ``aggregate_train``. It prints each file
with its number of functions, and the totals. Keys are those of a run configuration. Comprehensions
and generator expressions are left out: from Python 3.12 most of them are no functions.
"""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

from bfl.configuration.settings import parse_pairs
from bfl.engine.flower.app import FlowerApp, run_serially
from strategies.posterior_pooling import PosteriorPooling

ROOT = Path(__file__).resolve().parent.parent
OURS = tuple(str(ROOT / folder) for folder in ("bfl", "strategies", "clients"))
RUN = 'model="mlp" clients=3 rounds=2 train-examples=60 test-examples=30 evaluate-every=0'


class Trace:
    """A profiler of this project's own functions, while a round is made."""

    def __init__(self) -> None:
        self.functions: dict[str, set[str]] = defaultdict(set)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Note a function that is called."""
        code = frame.f_code
        named = not code.co_name.endswith(("comp>", "genexpr>"))
        if event == "call" and named and code.co_filename.startswith(OURS):
            self.functions[code.co_filename].add(code.co_qualname)


def traced(run_config: str) -> Trace:
    """Return the trace of the second round of a run."""
    trace = Trace()
    configure, aggregate = PosteriorPooling.configure_train, PosteriorPooling.aggregate_train

    def begin(self: PosteriorPooling, server_round: int, *given: Any) -> Any:
        sys.setprofile(trace if server_round == 2 else None)
        return configure(self, server_round, *given)

    def end(self: PosteriorPooling, server_round: int, *given: Any) -> Any:
        try:
            return aggregate(self, server_round, *given)
        finally:
            sys.setprofile(None)

    PosteriorPooling.configure_train = begin  # type: ignore[method-assign]
    PosteriorPooling.aggregate_train = end  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        values = parse_pairs(f'{RUN} output-dir="{folder}" {run_config}')
        run_serially(FlowerApp.read(ROOT), values, int(values["clients"]), {})
    return trace


def main() -> None:
    """Print the files and functions of a round."""
    found = traced(" ".join(sys.argv[1:])).functions
    for path, functions in sorted(found.items()):
        print(f"{len(functions):4}  {Path(path).relative_to(ROOT)}")
    print(f"{sum(map(len, found.values()))} functions in {len(found)} files")


if __name__ == "__main__":
    main()
