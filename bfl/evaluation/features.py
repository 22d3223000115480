"""Features of images in the plane, and how well groups of them are apart."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bfl.errors import DataError
from bfl.evaluation.prediction.predictions import FloatArray

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
