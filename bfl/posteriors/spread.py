"""Spread of σ/σ₀ over weights: has training told standard deviations apart?"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from bfl.errors import NotFiniteError
from bfl.posteriors.posterior import Posterior

ALIKE = 1.1
"""Standard deviations whose 95 % quantile is less than so many times their 5 % one count as one."""


class ScaleSpread(NamedTuple):
    """Quantiles of 5, 50 and 95 % over all weights of σ/σ₀, σ₀ being the initial deviation."""

    low: float
    median: float
    high: float

    @property
    def learnt(self) -> bool:
        """True if training has told weights apart: the quantiles differ by more than a tenth."""
        return self.high >= ALIKE * self.low

    def sentence(self) -> str:
        """Return what the quantiles say of the posterior, for its report.

        Example:
            >>> ScaleSpread(0.7, 1.2, 1.9).sentence()
            'variances differ between weights: 0.7 to 1.9 times their initial scale, median 1.2'
        """
        if self.learnt:
            return (
                f"variances differ between weights: {self.low:.3g} to {self.high:.3g} times their "
                f"initial scale, median {self.median:.3g}"
            )
        unchanged = 1.0 / ALIKE < self.median < ALIKE
        found = "are as they began" if unchanged else "tell no weights apart"
        return f"variances {found}: {self.median:.3g} times their initial scale everywhere"


def describe_variances(
    posterior: Posterior, initial_scale: float, epistemic: Callable[[Posterior], float]
) -> dict[str, Any]:
    """Return whether training has told variances apart, and what ``epistemic(q)`` changes."""
    spread = scale_spread(posterior, initial_scale)
    if not spread:
        return {"sentence": "The weights are points: they have no variances that could be learnt."}
    found = {**spread._asdict(), "sentence": f"The posterior's {spread.sentence()}."}
    with suppress(NotFiniteError):
        own, alike = epistemic(posterior), epistemic(isotropic(posterior))
        if alike > 0.0:
            found["over-isotropic"] = own / alike
            found["sentence"] += (
                f" Its draws disagree {own / alike:.2f} times as much as those of isotropic noise "
                "of the same size."
            )
    return found


def isotropic(posterior: Posterior) -> Posterior:
    """Return the posterior of the same means and the same noise power, alike for all weights."""
    alike = np.full_like(posterior.variance, posterior.variance.mean(dtype=np.float64))
    return Posterior(posterior.mean, alike, posterior.point)


def scale_spread(posterior: Posterior, initial_scale: float) -> ScaleSpread | None:
    """Return the quantiles of σ/σ₀ over a posterior's weights; None of a network of points."""
    if not posterior.size:
        return None
    deviations = np.sqrt(posterior.variance.astype(np.float64)) / initial_scale
    return ScaleSpread(*map(float, np.quantile(deviations, (0.05, 0.5, 0.95))))
