"""Reports: all results of a run as one HTML file, which needs no network.

Figures are vector graphics in the page's colours, light or dark.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bfl.evaluation.metrics import higher_is_better
from bfl.evaluation.metrics.accuracy import wilson_interval
from bfl.evaluation.metrics.negative_log_likelihood import NegativeLogLikelihood
from bfl.evaluation.prediction.predictions import FloatArray
from bfl.evaluation.regression import ERROR, SQUARED
from bfl.experiments.results.environment import told_of_times
from bfl.experiments.results.figures import figures
from bfl.experiments.results.figures.style import (
    FAINT,
    GRID,
    INK,
    PAPER,
    client_names,
    image_of,
    run_title,
)
from bfl.experiments.results.foreign import BEFORE_CLOSING
from bfl.experiments.results.run_folder import (
    CLIENTS,
    ENVIRONMENT,
    PARTITION,
    PER_CLIENT,
    PREDICTED_NUMBERS,
    PREDICTIONS,
    RunFolder,
)
from bfl.experiments.results.table import ABSENT, cell, tabulated
from bfl.federation.client_metrics import TEST_EXAMPLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

TEMPLATE = Path(__file__).with_name("report.html")

REPORT = "report.html"
"""The report's default file in a run's folder."""

SECTIONS = {
    "Learning": ("learning-curve", "posterior-spread", "client-curves"),
    "Calibration": ("reliability-diagram", "confusion-matrix", "predicted-numbers"),
    "Uncertainty": ("retention-curves", "uncertainty-of-errors", "member-confidences"),
    "Foreign images and shift": ("foreign-images", "corruptions"),
    "Test images": ("certain-images",),
    "Clients": ("partition",),
}
"""The sections of a run's report with their figures; other figures come last."""


TILES = (
    *("accuracy", "root-mean-squared-error", "negative-log-likelihood"),
    *("expected-calibration-error", "continuous-ranked-probability-score", "interval-coverage"),
)
"""The numbers at the top of a run's report, if the run has them."""

SHARES = ("accuracy", "interval-coverage")
"""Shares of the test examples for which something holds."""

SPREADS = (
    "95 %: Wilson's interval of a binomial share. ±: standard error, the deviation over the test "
    "examples / √n; of a root, by the delta method. Both are of this one run."
)


@dataclass(frozen=True)
class Drawn:
    """A figure: its name, its graphic as SVG and its caption."""

    name: str
    svg: str
    caption: str


@dataclass(frozen=True)
class Table:
    """A table: its caption, its columns with whether they are numeric, its rows as texts."""

    caption: str
    columns: Sequence[tuple[str, bool]]
    rows: Sequence[Sequence[str]]
    folded: bool = False

    @classmethod
    def of(cls, caption: str, rows: Sequence[Mapping[str, Any]], folded: bool = False) -> Table:
        """Return a table of mappings, whose keys are the columns."""
        return cls(caption, *tabulated(rows), folded)


@dataclass
class Section:
    """A section of a report: a title over texts, a list, figures and tables."""

    title: str
    texts: list[str] = field(default_factory=list)
    items: list[str] = field(default_factory=list)
    figures: list[Drawn] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


def svg(figure: MatplotlibFigure, name: str) -> str:
    """Return a figure as an SVG element in the colours of the page around it.

    Args:
        name: Its name on the page, which makes its ids unique and is read to the blind.
    """
    figure.suptitle("")  # the page names the run
    figure.patch.set_alpha(0.0)
    for axes in figure.axes:
        axes.patch.set_alpha(0.0)
    text = image_of(figure, "svg", name).decode()
    text = text[text.index("<svg") :]
    for color, variable in (
        (INK, "--ink"),
        (FAINT, "--faint"),
        (GRID, "--grid"),
        (PAPER, "--back"),
    ):
        text = text.replace(color.lower(), f"var({variable})")
    # By default SVG fills outlines without a colour, such as letters, with black.
    label = f'role="img" aria-label="{name}" fill="var(--ink)" '
    return re.sub(r"<svg ", f"<svg {label}", text, count=1)


def run_report(folder: RunFolder) -> str:
    """Return the report of a run as one HTML page.

    Raises:
        DataError: The folder holds no finished run, or a file of it is corrupt.
    """
    numbers, config = folder.metrics(), folder.config()
    return page(
        title=folder.path.name,
        about=[*run_title(config).splitlines(), *_examples(folder), *_times(folder)],
        tiles=_tiles(numbers, folder),
        told=SPREADS if _tested(folder) else "",
        sections=[s for s in _run_sections(folder, config) if s.items or s.figures or s.tables],
    )


def _examples(folder: RunFolder) -> Iterator[str]:
    """Yield the numbers of training and test examples, if the folder has them."""
    trained = sum(folder.read_json(PARTITION, {}).get("num_examples", ()))
    found = {"training": trained, "test": _tested(folder)}
    if any(found.values()):
        yield ", ".join(f"{count:,} {what} examples" for what, count in found.items() if count)


def _tested(folder: RunFolder) -> int:
    """Return how many examples the final evaluation is of; 0: it has left no predictions."""
    if not folder.holds(PREDICTIONS):
        return 0
    with folder.reading_arrays(PREDICTIONS) as arrays:
        return arrays.header("targets" if "targets" in arrays else "labels").shape[0]


def _times(folder: RunFolder) -> list[str]:
    return told_of_times([folder.read_json(ENVIRONMENT, {})])


def page(**content: Any) -> str:
    """Return a page with a ``title``, lines ``about`` it, ``sections``, and ``tiles`` if any."""
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=False, keep_trailing_newline=True)
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(**content)


def _tiles(numbers: Mapping[str, float], folder: RunFolder) -> list[dict[str, Any]]:
    """Return the main numbers, with their uncertainty and their values before the closing."""
    spreads = _spreads(numbers, folder)
    names = [*TILES]
    names += [name for name in numbers if name.startswith("ood-") and name.endswith("-auroc")]
    tiles = []
    for name in names:
        if (value := numbers.get(name)) is None:
            continue
        before = numbers.get(f"{BEFORE_CLOSING}{name}")
        notes = spreads.get(name, [])
        notes += [] if before is None else [f"{cell(before)} before the closing round"]
        tiles.append({"name": name.replace("-", " "), "value": cell(value), "notes": notes})
    return tiles


def _spreads(numbers: Mapping[str, float], folder: RunFolder) -> dict[str, list[str]]:
    """Return intervals or standard errors of numbers over the test examples, as text."""
    found: dict[str, list[str]] = {}
    if count := _tested(folder):
        for name in (name for name in SHARES if name in numbers):
            low, high = (cell(float(bound)) for bound in wilson_interval(numbers[name], count))
            found[name] = [f"95 %: {low} to {high}"]
    if count > 1:
        values = _values(folder)
        errors = {name: float(v.std(ddof=1)) / math.sqrt(count) for name, v in values.items()}
        if SQUARED in errors and (root := numbers.get(ERROR)):
            errors[ERROR] = errors[SQUARED] / (2.0 * root)
        found |= {name: [f"± {cell(error)}"] for name, error in errors.items()}
    return found


def _values(folder: RunFolder) -> dict[str, FloatArray]:
    """Return the values of each test example, of numbers that are their means."""
    if folder.holds(PREDICTED_NUMBERS):
        predicted, targets = folder.predicted_numbers()
        return {name: values for name, (values, _) in predicted.values(targets).items()}
    metric = NegativeLogLikelihood()
    return {metric.name: metric.values(*folder.predictions())}


def _run_sections(folder: RunFolder, config: Mapping[str, Any]) -> Iterator[Section]:
    if warnings := folder.warnings():
        yield Section("Warnings", items=warnings)
    named = [name for names in SECTIONS.values() for name in names]
    others = tuple(name for name in figures.names() if name not in named)
    for title, names in {**SECTIONS, "Other figures": others}.items():
        section = Section(title)
        for name in (name for name in names if name in figures):
            figure = figures.create(name, config)
            drawn = figure.draw(folder)
            if drawn is not None:
                section.figures.append(Drawn(name, svg(drawn, name), figure.summary()))
        if title == "Clients":
            section.tables += _clients(folder, config)
        yield section
    yield Section("Metrics", tables=[_metrics(folder.metrics())])
    yield Section("What was run", tables=list(_origin(folder, config)))


def _metrics(numbers: Mapping[str, float]) -> Table:
    words = {True: "higher", False: "lower", None: ""}
    rows = [
        {"metric": n, "value": v, "better": words[higher_is_better(n.removeprefix(BEFORE_CLOSING))]}
        for n, v in numbers.items()
    ]
    return Table.of(f"All {len(rows)} final numbers", rows, folded=True)


def _clients(folder: RunFolder, config: Mapping[str, Any]) -> Iterator[Table]:
    """Yield the table of clients: examples, weights in the last round, metrics on their data."""
    names, rounds = client_names(folder), folder.rounds()
    measured = folder.read_json(CLIENTS, {})
    called = str(config.get("site-column") or "name")
    number = "number" if called == "client" else "client"
    columns: dict[str, Mapping[str, Any]] = {
        called: _by_client(names),
        number: {},
        "training examples": _by_client(folder.read_json(PARTITION, {}).get("num_examples", ())),
        "test examples": {c: own[TEST_EXAMPLES] for c, own in measured.items()},
        "weight in the last round": {
            str(entry["client"]): entry.get("weight")
            for entry in (rounds[-1].get(PER_CLIENT, ()) if rounds else ())
        },
    }
    clients = dict.fromkeys(client for column in columns.values() for client in column)
    columns[number] = {client: client for client in clients}
    for name in dict.fromkeys(n for own in measured.values() for n in own if not _is_long(n)):
        held = {c: own[name] for c, own in measured.items() if name in own}
        columns.setdefault(name.replace("-", " "), held)
    rows = [{n: column[c] for n, column in columns.items() if c in column} for c in clients]
    if rows:
        caption = f"By {called}" if names else "By client"
        yield Table.of(caption, rows, folded=len(rows) > 20)


def _by_client(values: Sequence[Any]) -> dict[str, Any]:
    return {str(number): value for number, value in enumerate(values)}


def _is_long(name: str) -> bool:
    return "retention" in name or "risk" in name or "adaptive" in name


def _origin(folder: RunFolder, config: Mapping[str, Any]) -> Iterator[Table]:
    """Yield the posterior's digest, the machine and the configuration."""
    rounds = folder.rounds()
    facts: dict[str, Any] = {
        "rounds": len(rounds),
        "seconds of rounds": math.fsum(r["seconds"] for r in rounds),
    }
    facts["posterior SHA-256"] = rounds[-1].get("posterior-sha256", ABSENT) if rounds else ABSENT
    given = {key: value for key, value in config.items() if value not in ("", None)}
    for caption, values, folded in (
        ("The run", facts, False),
        ("Versions and machine", folder.read_json(ENVIRONMENT), True),
        (f"Configuration: {len(given)} keys", given, True),
    ):
        rows = [{"": key, "value": str(value)} for key, value in values.items()]
        yield Table.of(caption, rows, folded=folded)
