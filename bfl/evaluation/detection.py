"""Detection of foreign images among test images by an uncertainty."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def detection(inside: npt.ArrayLike, foreign: npt.ArrayLike) -> dict[str, float]:
    """Return AUROC, AUPR and FPR95 of a score, the foreign images being positive.

    ``auroc`` is the probability that a foreign image has the higher score, ties counted half;
    ``aupr`` the average precision; ``fpr95`` the share of test images that are taken for foreign
    where 95 % of the foreign ones are.

    Args:
        inside: (N,) scores of test images, higher where an image looks more foreign.
        foreign: (M,) scores of foreign images.

    Source: Hendrycks and Gimpel (2017); Yang et al. (2022), "OpenOOD", for the three together.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

    score = np.concatenate([np.asarray(inside, np.float64), np.asarray(foreign, np.float64)])
    positive = np.arange(len(score)) >= len(np.asarray(inside))
    false, true, _ = roc_curve(positive, score, drop_intermediate=False)
    return {
        "auroc": float(roc_auc_score(positive, score)),
        "aupr": float(average_precision_score(positive, score)),
        "fpr95": float(false[np.argmax(true >= 0.95)]),
    }
