"""The command ``bfl features``: what networks make of images before they decide, in the plane."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console

from bfl.api import Result, load
from bfl.api.result import POSTERIORS
from bfl.commands.image_files import read_images, read_labels
from bfl.errors import ConfigurationError, DataError, RunError, unknown_name
from bfl.evaluation.features import in_the_plane, silhouette
from bfl.experiments.comparison.layouts import Layout, draw_layouts
from bfl.experiments.results.table import results_table
from bfl.files import write_atomically

IMAGES = 1000
"""Images that a panel shows, unless ``--images`` says otherwise."""


@dataclass(frozen=True)
class ImageFile:
    """A file of images, and whether its own labels or the predictions say what they are."""

    path: Path
    labelled: bool

    def __str__(self) -> str:
        """Return what a panel says of it."""
        return f"{self.path.name}, by {'label' if self.labelled else 'prediction'}"


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of ``bfl``."""
    features = commands.add_parser("features", help="draw runs' features of images by t-SNE")
    features.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="a run's folder")
    features.add_argument(
        "--data",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="an archive (.npz) of images (images or x_test) and their classes (labels or y_test), "
        "which colour them; repeatable",
    )
    features.add_argument(
        "--unlabelled",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="images of other classes, coloured by what each run predicts; repeatable",
    )
    features.add_argument(
        "--classes",
        nargs="+",
        metavar="NAME",
        help="only images of these classes (default: of all)",
    )
    features.add_argument(
        "--images",
        type=int,
        default=IMAGES,
        metavar="N",
        help=f"so many of them in each panel, drawn by a fixed seed (default: {IMAGES})",
    )
    features.add_argument(
        "--posterior",
        choices=POSTERIORS,
        default="last",
        help="that of the last round, or of the best one on the server's own images",
    )
    features.add_argument(
        "--output",
        type=Path,
        default=Path("features.png"),
        metavar="FILE",
        help="what gets the figure, a PNG (default: features.png)",
    )
    features.set_defaults(run=draw_features)


def draw_features(given: argparse.Namespace) -> None:
    """Draw the features of each run for each file, and print how well classes are apart."""
    if given.output.suffix.lower() != ".png":
        raise ConfigurationError(f"--output is {given.output}; allowed: a name that ends in .png")
    if not given.output.absolute().parent.is_dir():
        raise ConfigurationError(f"--output: there is no folder {given.output.absolute().parent}")
    if given.images < 1:
        raise ConfigurationError(f"--images is {given.images}; allowed: at least 1")
    files = [ImageFile(path, True) for path in given.data]
    files += [ImageFile(path, False) for path in given.unlabelled]
    if not files:
        raise ConfigurationError("there are no images: name a file by --data or --unlabelled")
    results = [load(folder, given.posterior) for folder in given.runs]
    class_names = _class_names(results)
    wanted = _numbers(given.classes, class_names)
    rows = [[_layout(r, file, wanted, given.images) for file in files] for r in results]
    Console().print(results_table([_line(panel) for row in rows for panel in row], "Features"))
    try:
        write_atomically(given.output, draw_layouts(rows, class_names))
    except OSError as error:
        raise RunError(f"cannot write {given.output}: {error.strerror or error}") from error
    print(given.output)


def _class_names(results: Sequence[Result]) -> tuple[str, ...]:
    """Return the classes of the runs.

    Raises:
        ConfigurationError: The runs have different ones.
    """
    first = results[0]
    for other in results[1:]:
        if other.class_names != first.class_names:
            raise ConfigurationError(
                f"{first.folder} knows the classes {', '.join(first.class_names)}, and "
                f"{other.folder} knows {', '.join(other.class_names)}; draw them by themselves"
            )
    return first.class_names


def _numbers(wanted: Sequence[str] | None, names: Sequence[str]) -> list[int]:
    if wanted is None:
        return list(range(len(names)))
    for name in wanted:
        if name not in names:
            raise ConfigurationError(f"--classes: {unknown_name('class', name, names)}")
    return [names.index(name) for name in wanted]


def _layout(result: Result, file: ImageFile, wanted: Sequence[int], count: int) -> Layout:
    """Return the panel of one run and one file.

    Raises:
        DataError: The images are not such as the run takes, or too few are of the classes asked
            for.
    """
    images = read_images(file.path)
    if not images.size:
        raise DataError(f"{file.path} holds no images: its array has shape {images.shape}")
    labels = read_labels(file.path, len(images), len(result.class_names)) if file.labelled else None
    try:
        groups = result.predict(images).predicted if labels is None else labels
        chosen = np.flatnonzero(np.isin(groups, wanted))
        if len(chosen) > count:
            # Not the first ones: archives are often sorted by class.
            chosen = np.sort(np.random.default_rng(0).choice(chosen, count, replace=False))
        if not len(chosen):
            kind = "predicted" if labels is None else "labelled"
            raise DataError(f"no image is {kind} as one of the classes asked for")
        features = result.features(images[chosen])
        places = in_the_plane(features)
    except DataError as error:
        raise DataError(f"{file.path}, {result.name}: {error}") from error
    apart = silhouette(features, groups[chosen])
    return Layout(result.name, str(file), places, groups[chosen], apart)


def _line(panel: Layout) -> dict[str, object]:
    return {
        "run": panel.run,
        "images": panel.images,
        "number": len(panel.groups),
        "silhouette": panel.silhouette,
    }
