"""The command ``bfl features``: what networks make of images before they decide, in the plane."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console

from bfl.api import Result, load
from bfl.api.predictions import checked_images
from bfl.api.result import POSTERIORS
from bfl.commands.image_files import USUAL_NAMES, read_images, read_labels
from bfl.commands.terminal import check_new, check_suffix, path_argument, write_output
from bfl.errors import ConfigurationError, DataError, unknown_name
from bfl.evaluation.prediction.predictions import FloatArray
from bfl.experiments.results.figures.images import Layout, draw_layouts
from bfl.experiments.results.table import results_table

IMAGES = 1000
"""Images that a panel shows, unless ``--images`` says otherwise."""


Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ImageFile:
    """The images of a file, and their classes where it says them.

    Attributes:
        images: Images (N, H, W, C), or (N, H, W) where C is 1, such as all runs take.
        labels: (N,) their classes; None: each run's predictions say what they are.
    """

    path: Path
    images: npt.NDArray[Any]
    labels: Numbers | None

    def __str__(self) -> str:
        """Return what a panel says of it."""
        return f"{self.path.name}, by {'prediction' if self.labels is None else 'label'}"


def add_to(features: argparse.ArgumentParser) -> None:
    """Add the options of ``bfl features``."""
    features.add_argument(
        "runs", type=path_argument, nargs="+", metavar="RUN", help="a run's folder"
    )
    features.add_argument(
        "--data",
        type=path_argument,
        action="append",
        default=[],
        metavar="FILE",
        help="an archive (.npz) of images (images or x_test) and their classes (labels or y_test), "
        "which colour them; repeatable",
    )
    features.add_argument(
        "--unlabelled",
        type=path_argument,
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
        help="as for bfl predict",
    )
    features.add_argument(
        "--output",
        type=path_argument,
        default=Path("features.png"),
        metavar="FILE",
        help="what gets the figure, a new PNG file (default: features.png)",
    )
    features.set_defaults(run=draw_features)


def draw_features(given: argparse.Namespace) -> None:
    """Draw the features of each run for each file, and print how well classes are apart."""
    check_suffix("--output", given.output, ".png")
    check_new(given.output)
    if given.images < FEWEST:
        raise ConfigurationError(f"--images is {given.images}; allowed: at least {FEWEST}")
    if not (given.data or given.unlabelled):
        raise ConfigurationError("there are no images: name a file by --data or --unlabelled")
    results = [load(folder, given.posterior) for folder in given.runs]
    # What is wrong with a run's folder is not said of the images, nor after others were computed.
    for result in results:
        _ = result.image_shape, result.posterior
    class_names = _class_names(results)
    wanted = _numbers(given.classes, class_names)
    files = [_read(path, results, wanted, given.images, labelled=True) for path in given.data]
    # Which images are of some classes is known beforehand where the file says it, and of all.
    beforehand = given.images if given.classes is None else None
    files += [_read(path, results, wanted, beforehand) for path in given.unlabelled]
    rows = [[_layout(r, file, wanted, given.images) for file in files] for r in results]
    Console().print(results_table([_line(panel) for row in rows for panel in row], "Features"))
    write_output(given.output, draw_layouts(rows, class_names))


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


def _read(
    path: Path,
    results: Sequence[Result],
    wanted: Sequence[int],
    count: int | None,
    *,
    labelled: bool = False,
) -> ImageFile:
    """Return the images that are to be drawn of a file.

    Args:
        results: The runs, which have to take such images.
        wanted: The classes that are asked for.
        count: So many of them at most; None: all images, of any classes.
        labelled: Whether the file says the classes of its images.

    Raises:
        DataError: It cannot be read, the images are not such as the runs take, or too few are of
            the classes asked for.
    """
    usual = " or ".join(USUAL_NAMES)
    images = read_images(path, unclear=f"the array of its images has to be called {usual}")
    for result in results:
        try:
            checked_images(images, result.image_shape, result.configuration)
        except DataError as error:
            raise DataError(f"{path}, {result.name}: {error}") from error
    classes = len(results[0].class_names)
    labels = read_labels(path, len(images), classes) if labelled else None
    if count is None:
        return ImageFile(path, images, labels)
    try:
        # Without labels all are of classes asked for.
        groups = np.full(len(images), wanted[0]) if labels is None else labels
        chosen = _chosen(groups, wanted, count)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    return ImageFile(path, images[chosen], None if labels is None else labels[chosen])


def _chosen(groups: Numbers, wanted: Sequence[int], count: int) -> Numbers:
    """Return which images are drawn: of some groups, so many at most, the same ones each time.

    Args:
        groups: (N,) the group of each image.
        wanted: The groups that are asked for.
        count: How many images at most.

    Raises:
        DataError: There are too few to be laid out.
    """
    chosen = np.flatnonzero(np.isin(groups, wanted))
    if len(chosen) < FEWEST:
        raise DataError(
            f"{len(chosen)} of {len(groups)} images are of the classes asked for; it takes at "
            f"least {FEWEST}"
        )
    if len(chosen) > count:
        # Not the first ones: archives are often sorted by class.
        chosen = np.sort(np.random.default_rng(0).choice(chosen, count, replace=False))
    return chosen


def _layout(result: Result, file: ImageFile, wanted: Sequence[int], count: int) -> Layout:
    """Return the panel of one run and one file.

    Raises:
        DataError: Too few images are predicted to be of the classes asked for, or their features
            cannot be laid out.
    """
    try:
        groups = result.predict(file.images).predicted if file.labels is None else file.labels
        chosen = _chosen(groups, wanted, count)
        features = result.features(file.images[chosen])
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


PERPLEXITY = 30.0
"""About how many neighbours an image has; fewer where there are few images."""

FEWEST = 4
"""Images that can be laid out."""


def in_the_plane(features: FloatArray, seed: int = 0) -> FloatArray:
    """Return places (N, 2) of features (N, D) by t-SNE, which keeps neighbours together.

    Distances between groups and the sizes of groups mean nothing there, and places do not depend on
    the unit of the features. It starts at the first two principal components; the same features and
    seed give the same places.

    Args:
        features: Features (N, D), N at least 4 and D at least 2.

    Raises:
        DataError: There are too few images or features, some features are not finite, or all
            images have the same.

    Reference:
        van der Maaten and Hinton (2008). The perplexity is scikit-learn's default, 30, where FedBE
        (Chen and Chao, 2021, Fig. 10), which draws models so, gives none.
    """
    from sklearn.manifold import TSNE

    count, width = features.shape
    if count < FEWEST or width < 2:
        raise DataError(
            f"{count} images of {width} features cannot be laid out in the plane; it takes at "
            f"least {FEWEST} images and 2 features"
        )
    perplexity = min(PERPLEXITY, (count - 1) / 3)
    layout = TSNE(2, perplexity=perplexity, init="pca", random_state=seed)
    return np.asarray(layout.fit_transform(_in_one_unit(features)), np.float64)


def _in_one_unit(features: FloatArray) -> FloatArray:
    """Return features around 0, of which the greatest absolute value is 1.

    scikit-learn keeps squares of distances in float32, where those of very large and very small
    features are infinite or 0.

    Raises:
        DataError: Some are not finite, or all images have the same: the search would end the
            process.
    """
    if bad := int(np.count_nonzero(~np.isfinite(features))):
        raise DataError(
            f"{bad} of {features.size} features are not finite, as weights may be so large that "
            "they overflow: the run has diverged"
        )
    if not np.ptp(features, axis=0).any():
        raise DataError(
            f"all {len(features)} images have the same features, which cannot be laid out in the "
            "plane"
        )
    around = features - features.mean(axis=0)
    return np.asarray(around / np.abs(around).max(), np.float64)


def silhouette(features: FloatArray, groups: npt.NDArray[np.int64]) -> float:
    """Return how well groups of features are apart: 1 wholly, 0 not at all, below 0 they are mixed.

    The mean over images of (b − a) / max(a, b), where a is the mean distance of the image's
    features to those of its own group, and b to those of the nearest other one.

    Args:
        features: Features (N, D).
        groups: (N,) the group of each.

    Returns:
        A number in [−1, 1]; NaN where there are less than two groups, or as many as images.

    Reference:
        Rousseeuw (1987).
    """
    from sklearn.metrics import silhouette_score

    if not 2 <= len(np.unique(groups)) < len(groups):
        return float("nan")
    return float(silhouette_score(features, groups))
