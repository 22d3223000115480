"""Tables for the terminal and in Markdown, and the progress of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from numbers import Integral, Real
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from bfl import printing
from bfl.evaluation.metrics import higher_is_better
from bfl.federation.client_metrics import NAMESPACE, TRAIN_DIVERGENCE_PER_EXAMPLE, TRAIN_LIKELIHOOD
from bfl.federation.privacy import EPSILON, EXAMPLE_EPSILON
from bfl.printing import console_of_lines
from bfl.texts import printable

if TYPE_CHECKING:
    import pandas as pd


ABSENT = "–"
VALIDATION = "validation-"  # prefix of the names of metrics on the server's own images


def cell(value: Any) -> str:
    """Return a value as text for a table: with four decimals, or in scientific notation.

    Example:
        >>> [cell(value) for value in (0.91234567, 12, 1.5e-7, None, "iid", True)]
        ['0.9123', '12', '1.500e-07', '–', 'iid', 'yes']
    """
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Integral) or not isinstance(value, Real):
        return printable(str(value))
    number = float(value)
    plain = number == 0.0 or not math.isfinite(number) or 1e-3 <= abs(number) < 1e5
    return f"{number:.4f}" if plain else f"{number:.3e}"


def three_digits(value: Any) -> str:
    """Return a value as text for people: numbers in three significant digits.

    Example:
        >>> [three_digits(value) for value in (0.91234567, 12, 0.0004, 12345.6, None)]
        ['0.912', '12', '0.000400', '12,346', '–']
    """
    if isinstance(value, Integral) or not isinstance(value, Real) or not math.isfinite(value):
        return cell(value)
    number = float(value)
    if abs(number) >= 1000.0:
        return f"{number:,.0f}" if abs(number) < 1e7 else f"{number:.2e}"
    plain = number == 0.0 or abs(number) >= 1e-4
    return (f"{number:#.3g}".rstrip(".") if plain else f"{number:.2e}").replace("-", "−")


def tabulated(
    rows: Sequence[Mapping[str, Any]], form: Callable[[Any], str] = cell
) -> tuple[list[tuple[str, bool]], list[list[str]]]:
    """Return the columns of rows, each with whether it is numeric, and the rows as texts.

    The columns are the rows' keys in the order of first appearance; a missing value is a dash.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    numeric = [
        all(isinstance(row[n], Real) for row in rows if row.get(n) is not None) for n in names
    ]
    texts = [[form(row.get(name)) for name in names] for row in rows]
    return list(zip(names, numeric, strict=True)), texts


def results_table(rows: Sequence[Mapping[str, Any]], title: str) -> Table:
    """Return a table of rows, such as runs or rounds, with a title; see ``tabulated``."""
    columns, texts = tabulated(rows)
    # Text and not str: a bracket in a name must not be taken for rich's markup.
    table = Table(title=Text(title), title_justify="default", header_style="bold")
    for column, numeric in columns:
        # In a narrow terminal, texts wrap and numbers do not.
        align: Any = {"justify": "right", "no_wrap": True} if numeric else {"overflow": "fold"}
        table.add_column(Text(_header(column)), **align)
    for row in texts:
        table.add_row(*map(Text, row))
    return table


def print_rows(rows: Sequence[Mapping[str, Any]], title: str) -> None:
    """Print a table without truncation: a terminal that is narrower wraps its lines."""
    console, table = Console(soft_wrap=True), results_table(rows, title)
    console.width = 100_000
    console.width = Measurement.get(console, console.options, table).maximum
    console.print(table)


def plain_table(rows: Sequence[Mapping[str, str]]) -> str:
    """Return a table of rows of texts as lines without rules."""
    import pandas as pd

    return str(pd.DataFrame(rows).to_string(index=False, na_rep=ABSENT))


def metrics_table(metrics: Mapping[str, float], samples: int | None = None) -> Table:
    """Return a table of final metrics, and of how many Monte Carlo samples, with better sides."""
    title = f"Final metrics, {samples} Monte Carlo samples" if samples else "Final metrics"
    rows = [{"metric": _header(name), "value": value} for name, value in metrics.items()]
    return results_table(rows, title)


def _header(key: str) -> str:
    arrow = {True: " ↑", False: " ↓", None: ""}[higher_is_better(key)]
    return f"{key}{arrow}"


def markdown_table(table: pd.DataFrame, numbers: int | None = None) -> str:
    """Return a table as Markdown; the last ``numbers`` columns, or numeric ones, stand right."""
    right = [kind.kind in "if" for kind in table.dtypes]
    if numbers is not None:
        right = [at >= len(right) - numbers for at in range(len(right))]
    rows = [list(map(str, table.columns)), ["---:" if end else "---" for end in right]]
    rows += [
        [str(cell).replace("|", "\\|") for cell in row] for row in table.astype(object).to_numpy()
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


NAMES = {
    "accuracy": "accuracy",
    "root-mean-squared-error": "RMSE",
    "negative-log-likelihood": "NLL",
    "expected-calibration-error": "ECE",
    "mean-epistemic": "epistemic",
    "interval-coverage": "coverage of 90 % intervals",
    "continuous-ranked-probability-score": "CRPS",
    "brier-score": "Brier",
    "auroc": "AUROC",
}
"""Short names of metrics."""

_MATTER = dict(list(NAMES.items())[:5])
_DETAILS = {
    f"{NAMESPACE}{TRAIN_LIKELIHOOD}": "train NLL",
    f"{NAMESPACE}{TRAIN_DIVERGENCE_PER_EXAMPLE}": "train KL/N",
}
_BOUNDS = {EPSILON: "ε", EXAMPLE_EPSILON: "ε of examples", "failures": "failures"}
_UNLESS_ZERO = ("failures", "mean-epistemic")
"""Numbers of a round's line, with their labels; details are for ``verbose``.

A network of points has no epistemic part.
"""


class _ActivityColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(printing.described(), style="dim", overflow="ellipsis", no_wrap=True)


class ProgressReport:
    """Prints a line for each round, and whenever there would be none for three seconds.

    In a terminal there is a bar as well, with the remaining time and what is being done.

    Args:
        verbose: Whether lines have the terms of the training's loss as well.
    """

    def __init__(
        self,
        rounds: int,
        console: Console | None = None,
        *,
        verbose: bool = False,
    ) -> None:
        self.rounds = rounds
        self.verbose = verbose
        self.console = console or console_of_lines()
        self._progress = Progress(
            TextColumn("rounds"),
            BarColumn(bar_width=8),  # 80 columns are enough for all
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            _ActivityColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal or self.console.quiet,
        )
        self._bar = self._progress.add_task("rounds", total=rounds)
        self._shown = ExitStack()

    def say(self, text: str) -> None:
        """Print a line, with the seconds since the start."""
        self.console.print(f"{printing.stamp()} {text}", markup=False)
        printing.spoke()

    def round(self, number: int, seconds: float, metrics: Mapping[str, Any]) -> None:
        """Print the line of a finished round."""
        matter = _MATTER
        if (
            not _MATTER.keys() & metrics.keys()
        ):  # the server's own data may be all that is tested on
            matter = {f"{VALIDATION}{key}": f"validation {name}" for key, name in matter.items()}
        shown = _shown(metrics, {**matter, **(_DETAILS if self.verbose else {}), **_BOUNDS})
        self.say(f"round {number}/{self.rounds}  {shown}  ({seconds:.1f} s)")
        self._progress.update(self._bar, completed=number)

    def end(self, metrics: Mapping[str, Any], folder: Path, *, over: bool = True) -> None:
        """Print the main numbers of a run, its folder and, if it is over, the next command."""
        if shown := _shown(metrics, NAMES, most=4):
            self.say(f"final  {shown}")
        for line in last_lines(folder)[: 1 + over]:
            self.say(line)

    def __enter__(self) -> ProgressReport:
        if not self.console.quiet:
            self._shown.enter_context(printing.shown())
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        self._shown.close()


def last_lines(folder: Path, content: str = "a page to send") -> tuple[str, str]:
    """Return the lines that say where a run's results are, and the next command."""
    near = folder.relative_to(here) if folder.is_relative_to(here := Path.cwd()) else folder
    command = f"bfl report {quote(str(near))}"
    return f"results are in {near}", f"next: {command} ({content}; bfl show: all numbers)"


def _shown(metrics: Mapping[str, Any], labels: Mapping[str, str], most: int | None = None) -> str:
    found = [
        f"{name} {cell(metrics[key])}"
        for key, name in labels.items()
        if metrics.get(key) is not None
        and (metrics[key] or key.removeprefix(VALIDATION) not in _UNLESS_ZERO)
    ]
    return "  ".join(found[:most])
