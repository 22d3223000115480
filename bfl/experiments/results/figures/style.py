"""Style of figures: colours, fonts, axes and titles; writing them to files."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import PurePath
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bfl.experiments.results.run_folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as MatplotlibFigure
    from matplotlib.image import AxesImage

# Okabe and Ito's palette, which the colour-blind can tell apart; yellow is left out on white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#333333", "#8C564B")
# Lines differ in dashes as well, for prints in grey.
DASHES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)))

INK, FAINT, GRID = "#333333", "#8A8A8A", "#E6E6E6"
PAPER = "#FFFFFE"  # the page's colour, the background of legends that cover lines
CHARACTERS_AN_INCH = 12  # the number of a title's characters in an inch
NAMED = 40  # the most classes, or clients, with names at an axis

_STYLE = {
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.0,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.6,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "legend.facecolor": PAPER,
    "figure.titlesize": 10.0,
    "figure.constrained_layout.use": True,
    "text.parse_math": False,  # a dollar sign in a name must not start a formula
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the figures' style, independent of the user's Matplotlib settings."""
    import matplotlib.style

    with matplotlib.style.context(["default", _STYLE]):
        yield


def new_figure(width: float, height: float) -> MatplotlibFigure:
    """Return an empty figure of a size in inches, on the Agg canvas.

    It needs no display, and pyplot's global state is not used, so several threads can draw.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as MatplotlibFigure

    figure = MatplotlibFigure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def look_of(index: int) -> dict[str, Any]:
    """Return the style of one of several lines; repeated colours get other dashes."""
    dash = DASHES[(index + index // len(COLORS)) % len(DASHES)]
    return {"color": COLORS[index % len(COLORS)], "linestyle": dash}


def image_of(figure: MatplotlibFigure, kind: str, bbox_inches: Any = None) -> bytes:
    """Return a figure as ``png``, ``svg`` or ``pdf``; the same data give the same bytes."""
    import matplotlib

    buffer = io.BytesIO()
    # Without Matplotlib's version and the date.
    names = {"png": "Software", "svg": "Date Creator", "pdf": "Creator Producer CreationDate"}
    nothing = dict.fromkeys(names[kind].split())
    with styled(), matplotlib.rc_context({"svg.hashsalt": "bfl"}):
        figure.savefig(buffer, format=kind, dpi=150, metadata=nothing, bbox_inches=bbox_inches)
    return buffer.getvalue()


def png(figure: MatplotlibFigure) -> bytes:
    """Return a figure as a PNG file."""
    return image_of(figure, "png")


# Titles and names --------------------------------------------------------------------------------


def run_title(config: Mapping[str, Any]) -> str:
    """Return the main choices of a run: data, network, clients and seed; rule and partition.

    Numbers have their unit, and a file has no folder.

    Example:
        >>> run_title({"strategy": "conflation", "partition": "dirichlet", "seed": 1}).splitlines()
        ['seed 1', 'conflation · dirichlet']
    """
    texts = {key: str(value) for key, value in config.items() if value is not None}
    kind, colon, location = texts.get("dataset", "").partition(":")
    if PurePath(location).is_absolute():
        texts["dataset"] = f"{kind}{colon}{PurePath(location).name}"
    if "clients" in texts:
        texts["clients"] += " clients"
    if "seed" in texts:
        texts["seed"] = f"seed {texts['seed']}"
    if "partition" in texts and config.get("site-column"):
        texts["partition"] += f":{config['site-column']}"
    first = ("dataset", "model", "inference", "clients", "seed")
    keys_of_lines = (first, ("strategy", "weighting", "partition"))
    lines = (" · ".join(texts[key] for key in keys if key in texts) for keys in keys_of_lines)
    return "\n".join(filter(None, lines))


def set_title(figure: MatplotlibFigure, what: str, folder: RunFolder) -> None:
    """Set a figure's title: its subject and the run."""
    config = folder.config({})
    if folder.nodes_have_data:
        config.pop("partition", None)
    title = "\n".join(filter(None, (what, run_title(config))))
    figure.suptitle(wrapped(title, figure.get_figwidth()))


def wrapped(text: str, width: float) -> str:
    """Return a title, wrapped to a figure's width in inches."""
    most = int(CHARACTERS_AN_INCH * width)
    return "\n".join(part for line in text.splitlines() for part in wrap(drawable(line), most))


@cache
def _characters() -> frozenset[str]:
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return frozenset(map(chr, get_font(findfont(FontProperties("DejaVu Sans"))).get_charmap()))


def drawable(text: str) -> str:
    """Return a text on one line, with a question mark for each character that cannot be drawn.

    A leading underscore is preceded by a space, as Matplotlib hides such labels in legends.
    """
    line = "".join(c if c in _characters() else "?" for c in " ".join(text.split()))
    return f" {line}" if line.startswith("_") else line


def names_of_classes(names: Sequence[str], longest: int = 24) -> list[str]:
    """Return classes' names for figures: drawable, unique, of at most ``longest`` characters.

    Names that would be equal, or have characters that cannot be drawn, are preceded by numbers.
    """

    def shortened(line: str) -> str:
        return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"

    lines = [drawable(name) for name in names]
    short = [shortened(line) for line in lines]
    return [
        shortened(f"{number}: {line}")
        if short.count(shown) > 1 or line.strip() != " ".join(name.split())
        else shown
        for number, (name, line, shown) in enumerate(zip(names, lines, short, strict=True))
    ]


# Axes --------------------------------------------------------------------------------------------


def label_panels(*axes: Axes) -> None:
    """Label the panels (a), (b), ... at their upper left."""
    for letter, panel in zip("abcdef", axes, strict=False):
        panel.set_title(f"({letter})", loc="left")


def percent_axis(*axes: Any) -> None:
    """Write the ticks of axes of shares in [0, 1] as percents."""
    for axis in axes:
        axis.set_major_formatter(lambda share, _position: f"{100.0 * share:g}")


def whole_numbers(axis: Any, **ticks: Any) -> None:
    """Put an axis's ticks at whole numbers; see Matplotlib's ``MaxNLocator`` for ``ticks``."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, **ticks))


def name_ticks(axis: Axis, names: Sequence[str], count: int) -> None:
    """Label the ticks 0 to ``count`` − 1 of an axis with names; with numbers if they are many."""
    if count > NAMED or len(names) != count:
        whole_numbers(axis)
        return
    axis.set_ticks(range(count), names)
    if axis is axis.axes.xaxis and max(map(len, names)) * count > 30:
        for label in axis.get_ticklabels():
            label.set(rotation=45, ha="right", rotation_mode="anchor")


def draw_counts(
    size: tuple[float, float],
    counts: npt.NDArray[np.int64],
    shades: npt.NDArray[Any],
    *,
    most: int,
    highest: float | None = None,
) -> tuple[MatplotlibFigure, Axes, AxesImage]:
    """Draw counts (rows, columns) as a heat map with the numbers in its cells, if they are few.

    Args:
        shades: What the colour shows, from 0 to ``highest``, or to the greatest.
        most: The most cells with numbers.
    """
    figure = new_figure(*size)
    axes = figure.subplots()
    image = axes.imshow(shades, cmap="Blues", vmin=0, vmax=highest, interpolation="nearest")
    axes.grid(visible=False)
    middle = (highest or shades.max()) / 2
    for (row, column), count in np.ndenumerate(counts):
        if count and counts.size <= most:
            color = "white" if shades[row, column] > middle else "#222222"  # on any page
            axes.text(column, row, str(count), ha="center", va="center", color=color, fontsize=6.5)
    return figure, axes, image


def finite_points(rounds: Sequence[Mapping[str, Any]], metric: str) -> list[tuple[int, float]]:
    """Return pairs (round, value) of the rounds with a finite value."""
    values = [(entry["round"], entry.get(metric)) for entry in rounds]
    return [(n, float(v)) for n, v in values if v is not None and math.isfinite(v)]
