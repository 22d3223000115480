"""Style of figures: colours, fonts, axes and titles; writing them to files."""

from __future__ import annotations

import io
import tomllib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bfl.experiments.results.run_folder import DATA, RunFolder
from bfl.texts import counted

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
LEAST_REM_AN_INCH = 5.0  # on a narrow page, which scrolls wider figures
REM_AN_INCH = 7.0  # on a page, where figures' letters of 9 points are as its own small ones
NAMED = 40  # the most classes, or clients, with names at an axis

_STYLE = tomllib.loads(Path(__file__).with_name("style.toml").read_text(encoding="utf-8"))


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the figures' style, independent of the user's Matplotlib settings."""
    import matplotlib.style

    with matplotlib.style.context(["default", _STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # of letters that become boxes
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


def png(figure: MatplotlibFigure) -> bytes:
    """Return a figure as a PNG file; the same data give the same bytes."""
    buffer = io.BytesIO()
    with styled():
        figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return buffer.getvalue()


def svg(figure: MatplotlibFigure, name: str) -> str:
    """Return a figure as an SVG element in the page's colours; its name makes its ids unique."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    figure.set_layout_engine("none")  # as it has been laid out
    for patch in (figure.patch, *(axes.patch for axes in figure.axes)):
        patch.set_alpha(0.0)
    buffer = io.StringIO()
    with styled(), rc_context({"svg.hashsalt": name}):
        # Not by savefig, which would draw it once more to find its edges.
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(buffer, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    colors = {"ink": INK, "faint": FAINT, "grid": GRID, "back": PAPER}
    for variable, color in colors.items():
        text = text.replace(color.lower(), f"var(--{variable})")
    width, height = figure.get_size_inches()
    # By default SVG fills outlines without a colour, such as letters, with black.
    head = (
        f'<svg role="img" aria-label="{name}" fill="var(--ink)" style="width: '
        f'{REM_AN_INCH * width:.1f}rem; min-width: {LEAST_REM_AN_INCH * width:.1f}rem" '
        f'viewBox="0 0 {72 * width:.1f} {72 * height:.1f}">'
    )
    return head + text[text.index(">", text.index("<svg")) + 1 :]


def run_title(folder: RunFolder) -> str:
    """Return the main choices of a run in two lines: its data, network and rule; whose data.

    A file has no folder. Where sites have data of their own, nothing was partitioned.
    """
    config = folder.config({})
    kind, colon, location = str(config.get("dataset", "")).partition(":")
    data = f"{kind}{colon}{PurePath(location).name if location[:1] == '/' else location}"
    parts = [data, *(config.get(key) for key in ("model", "inference", "strategy", "weighting"))]
    clients, site = len(folder.client_names()) or config.get("clients"), config.get("site-column")
    whose = [f"{config['partition']} partition"] if "partition" in config else []
    # Of clients with data of their own alone, the server has no digest.
    own = folder.read_json(DATA, {"train": ""}).get("train") is None
    whose = [] if site or own else whose
    if clients:
        of = f" of the column {site}" if site else " with own data" if own else ""
        whose = [f"{counted(clients, 'client' if whose else 'site')}{of}", *whose]
    whose += [f"seed {config['seed']}"] if "seed" in config else []
    return "\n".join((" · ".join(str(part) for part in parts if part), ", ".join(whose)))


def wrapped(text: str, width: float) -> str:
    """Return a title, wrapped to a figure's width in inches."""
    most = int(CHARACTERS_AN_INCH * width)
    return "\n".join(fill(line, most, break_on_hyphens=False) for line in text.splitlines())


def short_names(names: Sequence[str], longest: int = 24) -> list[str]:
    """Return names of at most ``longest`` characters, with their numbers where two are alike."""
    short = [n if len(n) <= longest else f"{n[: longest - 1]}…" for n in names]
    return [
        f"{number}: {name}"[:longest] if short.count(name) > 1 else name
        for number, name in enumerate(short)
    ]


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
